/* Runs the program of one rank as ranks of an MPI job, as threads, or alone:
 *
 *     program MODE [OPTION=VALUE ...] -- [ARGUMENT ...]
 *
 * MODE is "alone", "threads=N", or "mpi" in a program that was compiled with WITH_MPI. Options are
 * those of a session. A dedicated server runs no program. */
#ifndef CORE_RANKS_H
#define CORE_RANKS_H

#include <penstock.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_MPI
#include <mpi.h>
#endif

/* What the program of a rank is given. */
struct rank {
    penstock_session *session;
    int rank;
    int ranks;
    int argc;
    char **argv;
};

/* The program of a rank; 0 if all is well. It leaves the session open. */
static int rank_main(struct rank *rank);

/* The text of this thread's last error. */
static inline const char *why(void) {
    const penstock_error *error = penstock_last_error();
    return error == NULL ? "no error" : error->text;
}

/* Ends the program unless a call has succeeded. */
#define MUST(call)                                                                             \
    do {                                                                                       \
        if ((call) != PENSTOCK_OK) {                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, why());              \
            exit(3);                                                                           \
        }                                                                                      \
    } while (0)

/* Ends the program unless this is so. */
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, why()); \
            exit(4);                                                                           \
        }                                                                                      \
    } while (0)

/* Ends the program unless a call has failed with this code, and has said so. */
#define FAILS(expected, call)                                                                  \
    do {                                                                                       \
        int code_ = (call);                                                                    \
        if (code_ != (expected) || penstock_last_error() == NULL ||                            \
            penstock_last_error()->code != (expected)) {                                       \
            fprintf(stderr, "%s:%d: %s gave %d: %s\n", __FILE__, __LINE__, #call, code_, why()); \
            exit(5);                                                                           \
        }                                                                                      \
    } while (0)

/* Whether the last error's text has these words. */
static inline int says(const char *words) { return strstr(why(), words) != NULL; }

static inline void set_option(penstock_session_options *options, const char *word) {
    const char *value = strchr(word, '=');
    CHECK(value != NULL);
    size_t length = (size_t)(value++ - word);
#define IS(name) (length == strlen(name) && strncmp(word, name, length) == 0)
    if (IS("transport")) options->transport = value;
    else if (IS("root")) options->root = value;
    else if (IS("servers")) options->servers = strtoull(value, NULL, 10);
    else if (IS("url")) options->url = value;
    else if (IS("keys")) options->keys = value;
    else if (IS("dedicated")) options->dedicated = atoi(value);
    else if (IS("sync")) options->sync = atoi(value);
    else if (IS("direct")) options->direct = atoi(value);
    else if (IS("block_bytes")) options->block_bytes = strtoull(value, NULL, 10);
    else if (IS("strategy")) options->strategy = value;
    else {
        fprintf(stderr, "no option: %s\n", word);
        exit(2);
    }
#undef IS
}

static inline int run_rank(penstock_session *session, int argc, char **argv) {
    struct rank rank = {session, (int)penstock_session_rank(session),
                        (int)penstock_session_size(session), argc, argv};
    int code = 0;
    if (penstock_session_is_client(session)) {
        CHECK(rank.rank >= 0 && rank.rank < rank.ranks);
        code = rank_main(&rank);
    } else {
        CHECK(rank.rank == -1);
    }
    if (rank.session != NULL) MUST(penstock_session_close(rank.session));
    return code;
}

struct thread {
    penstock_seat *seat;
    int argc;
    char **argv;
    int code;
};

static inline void *run_thread(void *given) {
    struct thread *thread = given;
    penstock_session *session;
    MUST(penstock_seat_open(thread->seat, &session));
    thread->code = run_rank(session, thread->argc, thread->argv);
    return NULL;
}

static inline int run_threads(int ranks, const penstock_session_options *options, int argc,
                              char **argv) {
    penstock_seat **seats = calloc((size_t)ranks, sizeof *seats);
    struct thread *threads = calloc((size_t)ranks, sizeof *threads);
    pthread_t *ids = calloc((size_t)ranks, sizeof *ids);
    int code = 0;
    CHECK(seats != NULL && threads != NULL && ids != NULL);
    MUST(penstock_seats_create((size_t)ranks, options, seats));
    for (int nth = 0; nth < ranks; nth++) {
        threads[nth] = (struct thread){seats[nth], argc, argv, 0};
        CHECK(pthread_create(&ids[nth], NULL, run_thread, &threads[nth]) == 0);
    }
    for (int nth = 0; nth < ranks; nth++) {
        CHECK(pthread_join(ids[nth], NULL) == 0);
        code |= threads[nth].code;
    }
    free(seats);
    free(threads);
    free(ids);
    return code;
}

int main(int argc, char **argv) {
    penstock_session_options options = PENSTOCK_SESSION_OPTIONS_INIT;
    penstock_session *session;
    int first = 2, code;
    CHECK(argc >= 3);
    for (; first < argc && strcmp(argv[first], "--") != 0; first++)
        set_option(&options, argv[first]);
    CHECK(first < argc);
    argc -= first + 1;
    char **rest = argv + first + 1;
    if (strncmp(argv[1], "threads=", 8) == 0)
        return run_threads(atoi(argv[1] + 8), &options, argc, rest);
    if (strcmp(argv[1], "alone") == 0) {
        MUST(penstock_session_open(NULL, &options, &session));
        return run_rank(session, argc, rest);
    }
#ifdef WITH_MPI
    MPI_Comm comm = MPI_COMM_WORLD;
    int provided;
    /* MPI_THREAD_MULTIPLE, as open arrays need it where servers are among the ranks. */
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MUST(penstock_session_open(&comm, &options, &session));
    code = run_rank(session, argc, rest);
    MPI_Finalize();
    return code;
#else
    code = 2;
    fprintf(stderr, "no mode: %s\n", argv[1]);
    return code;
#endif
}

#endif
