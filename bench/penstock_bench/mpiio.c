/* A program of MPI-IO: it writes and reads one file in the way that a case says, and checks all.
 *
 * usage: mpiio CASE FILE BYTES REPEATS [KEY=VALUE ...]
 *
 * The values behind are hints. Rank 0 prints a line of JSON for each operation: seconds until the
 * last rank had finished, CPU seconds of all ranks, how much private and shared memory grew on the
 * rank where it grew most, and wrong words. The file's words of 4 bytes are a function of their places, so that
 * every rank can check what others have written. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { WORD = 4, PAGE = 4096, RECORD = 47008, SMALL = 16384, DIMS_MAX = 3 };

static int rank, ranks;
static uint32_t salt;

/* ----------------------------------------------------------------------------------------------
 * Cases
 */

/* One rank's part of the file: runs in the order of its memory. */
struct part {
    uint64_t bytes;      /* of the whole file */
    uint64_t runs;       /* of this rank */
    uint64_t *offsets;   /* where each begins, */
    uint32_t *lengths;   /* and how many bytes it has */
    uint64_t own;        /* bytes of this rank */
    MPI_Datatype etype;
    MPI_Datatype filetype;
    uint64_t displacement; /* of the view */
    int is_collective;
    uint64_t call_bytes; /* of one call; 0: all in one */
};

static void add_run(struct part *part, uint64_t offset, uint64_t length) {
    part->offsets[part->runs] = offset;
    part->lengths[part->runs++] = (uint32_t)length;
    part->own += length;
}

static void room_for(struct part *part, uint64_t runs) {
    part->offsets = malloc((runs + 1) * sizeof *part->offsets);
    part->lengths = malloc((runs + 1) * sizeof *part->lengths);
    if (!part->offsets || !part->lengths) MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

/* A cube of doubles, in blocks over three dimensions. */
static void block(struct part *part, uint64_t bytes) {
    int mesh[DIMS_MAX] = {0}, sizes[DIMS_MAX], own[DIMS_MAX], starts[DIMS_MAX];
    int extent = 1, rest = rank;
    while ((uint64_t)(extent + 1) * (extent + 1) * (extent + 1) * 8 <= bytes) extent++;
    MPI_Dims_create(ranks, DIMS_MAX, mesh);
    for (int dim = DIMS_MAX - 1; dim >= 0; dim--) {
        int width = (extent + mesh[dim] - 1) / mesh[dim], place = rest % mesh[dim];
        rest /= mesh[dim];
        sizes[dim] = extent;
        starts[dim] = (int)least((uint64_t)width * place, extent);
        own[dim] = (int)least(width, extent - starts[dim]);
    }
    part->bytes = (uint64_t)extent * extent * extent * 8;
    room_for(part, (uint64_t)own[0] * own[1]);
    for (int i = 0; i < own[0] && own[2]; i++)
        for (int j = 0; j < own[1]; j++) {
            uint64_t row = (uint64_t)(starts[0] + i) * extent + starts[1] + j;
            add_run(part, (row * extent + starts[2]) * 8, (uint64_t)own[2] * 8);
        }
    part->etype = MPI_DOUBLE;
    if (part->own)
        MPI_Type_create_subarray(3, sizes, own, starts, MPI_ORDER_C, MPI_DOUBLE, &part->filetype);
    else
        MPI_Type_contiguous(0, MPI_DOUBLE, &part->filetype);
}

/* A square of doubles, dealt out element by element over both dimensions. */
static void cyclic(struct part *part, uint64_t bytes) {
    int mesh[2] = {0}, extent = 1, dists[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC};
    int dargs[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, sizes[2];
    while ((uint64_t)(extent + 1) * (extent + 1) * 8 <= bytes) extent++;
    MPI_Dims_create(ranks, 2, mesh);
    sizes[0] = sizes[1] = extent;
    part->bytes = (uint64_t)extent * extent * 8;
    room_for(part, ((uint64_t)extent / mesh[0] + 1) * ((uint64_t)extent / mesh[1] + 1));
    for (int i = rank / mesh[1]; i < extent; i += mesh[0])
        for (int j = rank % mesh[1]; j < extent; j += mesh[1])
            add_run(part, ((uint64_t)i * extent + j) * 8, 8);
    part->etype = MPI_DOUBLE;
    MPI_Type_create_darray(ranks, rank, 2, sizes, dists, dargs, mesh, MPI_ORDER_C, MPI_DOUBLE,
                           &part->filetype);
}

/* Pieces of `piece` bytes, dealt out in turn. */
static void dealt(struct part *part, uint64_t bytes, uint64_t piece) {
    uint64_t turns = bytes / piece / ranks;
    turns += turns == 0;
    part->bytes = turns * piece * ranks;
    room_for(part, turns);
    for (uint64_t turn = 0; turn < turns; turn++)
        add_run(part, (turn * ranks + rank) * piece, piece);
    part->displacement = rank * piece;
    part->etype = MPI_BYTE;
    MPI_Datatype one;
    MPI_Type_contiguous((int)piece, MPI_BYTE, &one);
    MPI_Type_create_resized(one, 0, (MPI_Aint)(piece * ranks), &part->filetype);
    MPI_Type_free(&one);
}

static void records(struct part *part, uint64_t bytes) { dealt(part, bytes, RECORD); }

/* One large part for each rank. */
static void contiguous(struct part *part, uint64_t bytes) {
    uint64_t own = bytes / ranks / PAGE * PAGE;
    part->bytes = own * ranks;
    room_for(part, 1);
    add_run(part, own * rank, own);
    part->etype = part->filetype = MPI_BYTE;
}

/* Independent accesses of 4 KiB. */
static void pages(struct part *part, uint64_t bytes) {
    dealt(part, bytes, PAGE);
    part->is_collective = 0;
    part->call_bytes = PAGE;
}

/* Collective accesses of 16 KiB a rank, one after the other, as of metadata. */
static void small(struct part *part, uint64_t bytes) {
    dealt(part, bytes, SMALL);
    part->call_bytes = SMALL;
}

static uint32_t mixed(uint64_t number) {
    number = (number ^ (number >> 31)) * 0x9e3779b97f4a7c15u;
    number = (number ^ (number >> 29)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(number >> 32);
}

/* Pieces of 4 to 28 bytes, 16 on average, each of a random rank, as of climate models. */
static void many(struct part *part, uint64_t bytes) {
    uint64_t pieces = bytes / 16;
    room_for(part, pieces);
    for (uint64_t piece = 0; piece < pieces; piece++) {
        uint64_t length = (1 + mixed(2 * piece) % 7) * WORD;
        if (mixed(2 * piece + 1) % ranks == (uint32_t)rank) add_run(part, part->bytes, length);
        part->bytes += length;
    }
    int *lengths = malloc((part->runs + 1) * sizeof *lengths);
    MPI_Aint *places = malloc((part->runs + 1) * sizeof *places);
    if (!lengths || !places) MPI_Abort(MPI_COMM_WORLD, 1);
    for (uint64_t run = 0; run < part->runs; run++) {
        lengths[run] = (int)part->lengths[run];
        places[run] = (MPI_Aint)part->offsets[run];
    }
    part->etype = MPI_BYTE;
    MPI_Type_create_hindexed((int)part->runs, lengths, places, MPI_BYTE, &part->filetype);
    free(lengths);
    free(places);
}

static const struct {
    const char *name;
    void (*make)(struct part *, uint64_t);
} cases[] = {{"block", block},           {"cyclic", cyclic}, {"records", records},
             {"contiguous", contiguous}, {"pages", pages},   {"small", small},
             {"many", many}};

/* ----------------------------------------------------------------------------------------------
 * Contents
 */

static uint32_t word_at(uint64_t offset) { return mixed(offset / WORD + ((uint64_t)salt << 40)); }

static void fill(const struct part *part, uint32_t *memory) {
    for (uint64_t run = 0; run < part->runs; run++)
        for (uint32_t at = 0; at < part->lengths[run]; at += WORD)
            *memory++ = word_at(part->offsets[run] + at);
}

static long wrong_in_memory(const struct part *part, const uint32_t *memory) {
    long wrong = 0;
    for (uint64_t run = 0; run < part->runs; run++)
        for (uint32_t at = 0; at < part->lengths[run]; at += WORD)
            wrong += *memory++ != word_at(part->offsets[run] + at);
    return wrong;
}

/* Checks an equal part of the file by the operating system's reads. */
static long wrong_on_disk(const struct part *part, const char *path) {
    enum { BUFFER = 1 << 20 };
    static uint32_t buffer[BUFFER / WORD];
    uint64_t share = part->bytes / WORD / ranks * WORD;
    uint64_t at = share * rank, end = rank == ranks - 1 ? part->bytes : at + share;
    FILE *file = fopen(path, "rb");
    long wrong = 0;
    if (!file || fseeko(file, (off_t)at, SEEK_SET)) return 1;
    while (at < end) {
        size_t words = fread(buffer, WORD, least(BUFFER, end - at) / WORD, file);
        if (words == 0) {
            wrong++;
            break;
        }
        for (size_t word = 0; word < words; word++, at += WORD)
            wrong += buffer[word] != word_at(at);
    }
    if (rank == 0) {
        fseeko(file, 0, SEEK_END);
        wrong += (uint64_t)ftello(file) != part->bytes;
    }
    fclose(file);
    return wrong;
}

/* ----------------------------------------------------------------------------------------------
 * Meters
 */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void sleep_for(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&time, NULL);
}

/* Waits for all ranks asleep: MPI would take the processor from the late ones. */
static void rest(void) {
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) sleep_for(0.002);
}

/* Keeps the processors busy for a moment: one that has idled is slow at first. */
static void work_up(void) {
    static volatile uint32_t sink;
    const char *said = getenv("PENSTOCK_BENCH_WORK_UP_SECONDS");
    double until = now() + (said ? atof(said) : 0.1);
    for (uint64_t number = 0; now() < until; number++) sink = mixed(number);
    (void)sink;
}

static double cpu(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* A figure of /proc/self/status in bytes; 0 where there is none. */
static double memory(const char *name) {
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) sscanf(line + strlen(name), ": %lu", &kib);
    if (file) fclose(file);
    return (double)kib * 1024;
}

/* The private memory and the shared memory of this process, and the most of each so far. */
static struct {
    double now[2], most[2];
    volatile int is_over;
} used;

static void look_at_memory(void) {
    used.now[0] = memory("RssAnon");
    used.now[1] = memory("RssShmem");
    for (int kind = 0; kind < 2; kind++)
        if (used.now[kind] > used.most[kind]) used.most[kind] = used.now[kind];
}

/* Looks at the memory now and then, until the call is over. */
static void *watch_memory(void *nothing) {
    while (!used.is_over) {
        look_at_memory();
        sleep_for(0.005);
    }
    return nothing;
}

/* ----------------------------------------------------------------------------------------------
 * Operations
 */

static void check(int code) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    printf("{\"error\": \"MPI-IO has failed\"}\n");
    fflush(stdout);
    fprintf(stderr, "%s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int transfer(MPI_File file, MPI_Offset offset, char *memory, int count, MPI_Datatype etype,
                    int is_collective, int is_write) {
    MPI_Status *ignored = MPI_STATUS_IGNORE;
    if (is_collective)
        return is_write ? MPI_File_write_at_all(file, offset, memory, count, etype, ignored)
                        : MPI_File_read_at_all(file, offset, memory, count, etype, ignored);
    return is_write ? MPI_File_write_at(file, offset, memory, count, etype, ignored)
                    : MPI_File_read_at(file, offset, memory, count, etype, ignored);
}

static void move(const struct part *part, const char *path, int is_write, char *memory,
                 MPI_Info hints) {
    MPI_File file;
    int mode = is_write ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY;
    uint64_t step = part->call_bytes ? part->call_bytes : part->own;
    check(MPI_File_open(MPI_COMM_WORLD, path, mode, hints, &file));
    if (part->is_collective && part->filetype != MPI_BYTE)
        check(MPI_File_set_view(file, (MPI_Offset)part->displacement, part->etype, part->filetype,
                                "native", hints));
    int width;
    MPI_Type_size(part->etype, &width);
    /* All ranks make as many calls. */
    uint64_t calls = step ? (part->own + step - 1) / step : 1, most;
    MPI_Allreduce(&calls, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (!part->is_collective) most = calls;
    for (uint64_t call = 0, at = 0; call < most; call++, at += step) {
        uint64_t bytes = at < part->own ? least(step, part->own - at) : 0;
        int count = (int)(bytes / width);
        MPI_Offset offset = (MPI_Offset)(at / width);
        if (part->filetype == MPI_BYTE) offset += (MPI_Offset)part->offsets[0];
        if (!part->is_collective) offset = (MPI_Offset)part->offsets[call];
        check(transfer(file, offset, memory + at, count, part->etype, part->is_collective,
                       is_write));
    }
    if (is_write) check(MPI_File_sync(file));
    check(MPI_File_close(&file));
}

static void measure(const struct part *part, const char *path, int is_write, char *memory_,
                    MPI_Info hints) {
    double start, mine[4], all[4], before[2];
    long wrong, wrongs;
    pthread_t watcher;
    if (is_write)
        fill(part, (uint32_t *)memory_);
    else
        memset(memory_, 0xa5, part->own);
    rest();
    work_up();
    start = now() + 0.05; /* all ranks begin then, and are asleep before */
    MPI_Bcast(&start, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    used.most[0] = used.most[1] = 0;
    used.is_over = 0;
    look_at_memory();
    memcpy(before, used.now, sizeof before);
    pthread_create(&watcher, NULL, watch_memory, NULL);
    mine[1] = cpu();
    sleep_for(start - now());
    move(part, path, is_write, memory_, hints);
    mine[0] = now() - start;
    mine[1] = cpu() - mine[1];
    look_at_memory();
    used.is_over = 1;
    pthread_join(watcher, NULL);
    mine[2] = used.most[0] - before[0];
    mine[3] = used.most[1] - before[1];
    sleep_for(0.01);
    rest();
    MPI_Reduce(&mine[0], &all[0], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine[1], &all[1], 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine[2], &all[2], 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    wrong = is_write ? wrong_on_disk(part, path) : wrong_in_memory(part, (uint32_t *)memory_);
    MPI_Reduce(&wrong, &wrongs, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"result\": {\"operation\": \"%s\", \"bytes\": %llu, \"seconds\": %.6f, "
               "\"cpu_seconds\": %.6f, \"private_bytes\": %.0f, \"shared_bytes\": %.0f, "
               "\"wrong\": %ld}}\n",
               is_write ? "write" : "read", (unsigned long long)part->bytes, all[0], all[1],
               all[2], all[3], wrongs);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    struct part part = {.is_collective = 1};
    MPI_Info hints;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 5) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Info_create(&hints);
    for (int word = 5; word < argc; word++) {
        char *value = strchr(argv[word], '=');
        if (!value) MPI_Abort(MPI_COMM_WORLD, 2);
        *value = 0;
        MPI_Info_set(hints, argv[word], value + 1);
    }
    for (size_t number = 0; number < sizeof cases / sizeof *cases; number++)
        if (!strcmp(argv[1], cases[number].name))
            cases[number].make(&part, strtoull(argv[3], 0, 10));
    if (part.bytes == 0) MPI_Abort(MPI_COMM_WORLD, 2);
    if (part.filetype != MPI_BYTE) MPI_Type_commit(&part.filetype);
    char *memory_ = malloc(part.own + 1);
    if (!memory_) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int repeat = 0; repeat < atoi(argv[4]); repeat++) {
        salt = (uint32_t)repeat + 1;
        if (rank == 0) unlink(argv[2]);
        measure(&part, argv[2], 1, memory_, hints);
        measure(&part, argv[2], 0, memory_, hints);
    }
    if (rank == 0) unlink(argv[2]);
    free(memory_);
    free(part.offsets);
    free(part.lengths);
    if (part.filetype != MPI_BYTE) MPI_Type_free(&part.filetype);
    MPI_Info_free(&hints);
    MPI_Finalize();
    return 0;
}
