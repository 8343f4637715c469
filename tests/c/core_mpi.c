/* Sessions over MPI: what is no communicator, what ranks hear of wrong options of one, parts of the
 * job, MPI_Init without threads. A rank prints what is not so, and fails. */
#include <mpi.h>
#include <penstock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MPI_ABI_VERSION
#define FORTRAN_OF(comm) MPI_Comm_toint(comm) /* as the standard ABI has it */
#else
#define FORTRAN_OF(comm) (int)MPI_Comm_c2f(comm)
#endif

static int rank, ranks;

static const char *why(void) {
    const penstock_error *error = penstock_last_error();
    return error == NULL ? "no error" : error->text;
}

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "rank %d, line %d: not so: %s (%s)\n", rank, __LINE__, #condition, \
                    why());                                                               \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

/* Whether all ranks have this code, and the same text. */
static int all_have(int expected, int code) {
    char text[1024] = {0}, first[1024] = {0};
    int same, all;
    if (code != PENSTOCK_OK) strncpy(text, why(), sizeof text - 1);
    memcpy(first, text, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    same = code == expected && strcmp(text, first) == 0;
    if (!same) fprintf(stderr, "rank %d: %d %s\n", rank, code, text);
    MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return all;
}

/* What is wrong with the options of one rank. */
enum { NO_SIZE, NO_PLACE, TRANSPORT, STRATEGY, DEDICATED, SERVERS, URL, BOTH, BYTES, WRONGS };

static int open_wrongly(int wrong, int by_fortran, penstock_session **session) {
    penstock_session_options options = PENSTOCK_SESSION_OPTIONS_INIT;
    MPI_Comm comm = MPI_COMM_WORLD;
    switch (wrong) {
    case NO_SIZE: options.size = 0; break;
    case NO_PLACE: session = NULL; break;
    case TRANSPORT: options.transport = "pigeons"; break;
    case STRATEGY: options.strategy = "\xff"; break;
    case DEDICATED: options.dedicated = 2; break;
    case SERVERS: options.servers = (uint64_t)1 << 50; break;
    case URL: options.url = "http://example.org"; break;
    case BOTH: options.url = "unix:///x", options.servers = 2; break;
    case BYTES: options.block_bytes = UINT64_MAX; break;
    default: break;
    }
    if (by_fortran) return penstock_session_open_f(FORTRAN_OF(comm), &options, session);
    return penstock_session_open(&comm, &options, session);
}

/* Writes and reads an array of the ranks of a session. */
static void use(penstock_session *session, const char *path, double first) {
    int64_t me = penstock_session_rank(session), all = penstock_session_size(session);
    penstock_array *array;
    double own[3], back[3] = {0};
    CHECK(penstock_array_create("u", 1, (uint64_t[]){3 * (uint64_t)all}, "f8", &array) == 0);
    CHECK(penstock_array_set_distribution(array, "BLOCK", 1, (uint64_t[]){(uint64_t)all}, NULL) == 0);
    for (int nth = 0; nth < 3; nth++)
        own[nth] = first + 3 * (double)me + nth;
    CHECK(penstock_write(session, path, array, own, NULL) == 0);
    CHECK(penstock_read(session, path, array, back, NULL) == 0);
    CHECK(memcmp(own, back, sizeof own) == 0);
    penstock_array_free(array);
}

static void without_communicators(MPI_Comm comm) {
    penstock_session *session = (penstock_session *)1;
    MPI_Comm none = MPI_COMM_NULL, half, inter;
    CHECK(penstock_session_open(&none, NULL, &session) == PENSTOCK_ERR_SCHEMA);
    CHECK(session == NULL && strstr(why(), "MPI_COMM_NULL") != NULL);
    CHECK(penstock_session_open_f(FORTRAN_OF(none), NULL, &session) == PENSTOCK_ERR_SCHEMA);
    if (ranks > 1) {
        MPI_Comm_split(comm, rank % 2, rank, &half);
        MPI_Intercomm_create(half, 0, comm, 1 - rank % 2, 7, &inter);
        CHECK(penstock_session_open(&inter, NULL, &session) == PENSTOCK_ERR_SCHEMA);
        CHECK(strstr(why(), "intracommunicator") != NULL);
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
}

/* The two halves of the job have sessions at the same time, and one of all beside them. */
static void parts_of_the_job(MPI_Comm comm, const char *directory) {
    penstock_session *of_half, *of_all;
    char path[1024];
    MPI_Comm half;
    MPI_Comm_split(comm, rank % 2, -rank, &half);
    CHECK(penstock_session_open(&comm, NULL, &of_all) == 0);
    CHECK(penstock_session_open(&half, NULL, &of_half) == 0);
    snprintf(path, sizeof path, "%s/half-%d", directory, rank % 2);
    use(of_half, path, 100);
    snprintf(path, sizeof path, "%s/all", directory);
    use(of_all, path, 0);
    CHECK(penstock_session_close(of_half) == 0);
    MPI_Comm_free(&half);
    CHECK(penstock_session_barrier(of_all) == 0);
    CHECK(penstock_session_close(of_all) == 0);
}

/* Without MPI_THREAD_MULTIPLE some things cannot be done where ranks exchange messages. */
static void without_threads(MPI_Comm comm, const char *directory) {
    penstock_session_options options = PENSTOCK_SESSION_OPTIONS_INIT;
    penstock_call_options call = PENSTOCK_CALL_OPTIONS_INIT;
    penstock_session *session;
    penstock_open_array *open;
    penstock_split *split;
    penstock_array *array;
    double own[1] = {0};
    penstock_memory memory = {own, NULL, NULL};
    char path[1024];
    if (ranks == 1) return;
    snprintf(path, sizeof path, "%s/all", directory);
    options.transport = "messages";
    CHECK(penstock_session_open(&comm, &options, &session) == 0);
    CHECK(all_have(PENSTOCK_ERR_UNSUPPORTED,
                   penstock_open_array_open(session, path, "u", 0, &open)));
    CHECK(penstock_array_create("v", 1, (uint64_t[]){(uint64_t)ranks}, "f8", &array) == 0);
    CHECK(penstock_array_set_distribution(array, "BLOCK", 1, (uint64_t[]){(uint64_t)ranks}, NULL) == 0);
    call.background = "all";
    CHECK(all_have(PENSTOCK_ERR_UNSUPPORTED,
                   penstock_begin_write(session, path, array, 1, &memory, &call, &split)));
    call.background = "disk";
    CHECK(penstock_begin_write(session, path, array, 1, &memory, &call, &split) == 0);
    CHECK(penstock_split_end(split, NULL) == 0);
    penstock_array_free(array);
    CHECK(penstock_session_close(session) == 0);
}

/* Different options, and a rank that leaves. */
static void ranks_that_differ(MPI_Comm comm) {
    penstock_session_options options = PENSTOCK_SESSION_OPTIONS_INIT;
    penstock_session *session;
    if (ranks == 1) return;
    options.cache_bytes = (uint64_t)(rank + 1) << 20;
    CHECK(all_have(PENSTOCK_ERR_MISMATCH, penstock_session_open(&comm, &options, &session)));
    options.cache_bytes = 0;
    options.url = rank == 0 ? "unix:///nowhere" : NULL;
    CHECK(all_have(PENSTOCK_ERR_MISMATCH, penstock_session_open(&comm, &options, &session)));
    CHECK(penstock_session_open(&comm, NULL, &session) == 0);
    if (rank == 0) {
        penstock_session_leave(session, "it has had enough");
    } else {
        CHECK(penstock_session_barrier(session) == PENSTOCK_ERR_PEER);
        CHECK(strstr(why(), "it has had enough") != NULL);
        CHECK(penstock_last_error()->rank == 0);
        penstock_session_close(session); /* with an error, or without: it is over */
    }
    MPI_Barrier(comm);
}

int main(int argc, char **argv) {
    MPI_Comm comm = MPI_COMM_WORLD;
    penstock_session *session;
    CHECK(argc == 2);
    CHECK(penstock_session_open(&comm, NULL, &session) == PENSTOCK_ERR_SCHEMA);
    CHECK(session == NULL && strstr(why(), "MPI_Init") != NULL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    without_communicators(comm);
    for (int wrong = 0; wrong < WRONGS; wrong++)
        for (int who = 0; who < ranks; who++)
            for (int by_fortran = 0; by_fortran < 2; by_fortran++) {
                session = NULL;
                int code = open_wrongly(rank == who ? wrong : WRONGS, by_fortran, &session);
                CHECK(all_have(PENSTOCK_ERR_SCHEMA, code) && session == NULL);
                CHECK(penstock_last_error()->rank == who);
            }
    CHECK(open_wrongly(WRONGS, 1, &session) == 0);
    CHECK(penstock_session_rank(session) == rank && penstock_session_size(session) == ranks);
    CHECK(penstock_session_close(session) == 0);
    parts_of_the_job(comm, argv[1]);
    without_threads(comm, argv[1]);
    ranks_that_differ(comm);
    CHECK(penstock_session_open(NULL, NULL, &session) == 0); /* this process alone */
    CHECK(penstock_session_size(session) == 1);
    CHECK(penstock_session_close(session) == 0);
    MPI_Finalize();
    CHECK(penstock_session_open(&comm, NULL, &session) == PENSTOCK_ERR_SCHEMA);
    CHECK(strstr(why(), "MPI_Finalize") != NULL);
    return 0;
}
