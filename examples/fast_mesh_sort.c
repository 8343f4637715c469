/* FastMeshSort in C: 2^n processes sort a parallel file of records, through two views in turn.
 *
 *     mpiexec -n 8 ./fast_mesh_sort [OPTIONS] VOLUME
 *
 *     -r RECORDS  of a cell             -s SERVERS  of the volume
 *     -b BLOCK    records of a block    -c CACHE    bytes that each server caches
 *     -e SEED     of the records        -a          read ahead and write behind
 *
 * The program is Figure 5 of "The Vesta Parallel File System" (Corbett and Feitelson, TOCS 1996).
 * The file has a cell for each process. A process sorts subfiles of two views, and never computes
 * where their records lie. At the end the cells, one after the other, are sorted. Of four, process
 * 2 sorts
 *
 *     its cell           rows, each by itself: two cells wide for i = 0, four for i = 1
 *     View(1, 1, 1, 4)   View(1, 2, 2, 2)   View(1, 4, 4, 1)
 *        . . # .            . . . .            . . . .
 *        . . # .            # # . .            . . . .
 *        . . # .            . . . .            # # # #
 *        . . # .            # # . .            . . . .
 *
 * Window_Sort, which the paper leaves out, is an external merge sort here: however large the file,
 * a process holds at most six blocks in memory. The program makes the volume, and keeps it.
 *
 * fast_mesh_sort.py is the same sort in Python. */
#include <inttypes.h>
#include <mpi.h>
#include <penstock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 8 };
/* What records are XORed with when they are read and written: DOWN moves the largest to the end. */
static const uint64_t DOWN = 0, UP = UINT64_MAX;

typedef struct options {
    uint64_t records; /* of a cell */
    uint64_t block;   /* records of a block */
    uint64_t servers;
    uint64_t cache; /* bytes of each server; 0: an eighth of the file in all */
    uint64_t seed;
    int is_asynchronous;
    const char *volume;
} options;

/* Ends the job when this rank fails: no other waits for it. */
static void fail(const char *text)
{
    fprintf(stderr, "error: %s\n", text);
    sleep(1); /* so that mpiexec passes the text on before it ends */
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* Ends the job when all ranks know that it cannot go on. Rank 0 says why; the ranks end as after a
 * run that went well, so that the text arrives. */
static void refuse(const char *text)
{
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        fprintf(stderr, "error: %s\n", text);
    }
    MPI_Finalize();
    exit(1);
}

static void try(int code)
{
    if (code != PENSTOCK_OK) {
        fail(penstock_last_error()->text);
    }
}

static void *memory(uint64_t records)
{
    void *place = malloc(records * WIDTH + 1);

    if (place == NULL) {
        fail("there is no memory for a block");
    }
    return place;
}

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* ---------------------------------------------------------------------------------------------
 * Streams of records
 */

/* Reads a part of a subfile, block by block. */
typedef struct reader {
    penstock_subfile *subfile;
    uint64_t at, end, block; /* records */
    uint64_t direction;
    uint64_t *now, *ahead;
    penstock_request *request; /* that fills `ahead`, if the reader is asynchronous */
    int is_asynchronous;
} reader;

static void reader_begin(reader *reader)
{
    uint64_t count = least(reader->block, reader->end - reader->at);

    try(penstock_subfile_begin_read_at(reader->subfile, reader->at * WIDTH, reader->ahead,
                                       count * WIDTH, &reader->request));
    reader->at += count;
}

/* From record `start` to `end`, or to the end of the subfile. */
static reader reader_of(penstock_subfile *subfile, uint64_t start, uint64_t end, uint64_t block,
                        uint64_t direction, int is_asynchronous)
{
    reader reader = {subfile, start, end, block, direction, NULL, NULL, NULL, is_asynchronous};

    reader.now = memory(block);
    if (is_asynchronous) {
        reader.ahead = memory(block);
        reader_begin(&reader);
    }
    return reader;
}

/* The number of records of the next block, which are at `now`; 0 at the end. */
static uint64_t reader_next(reader *reader)
{
    uint64_t bytes = 0, *filled;

    if (reader->is_asynchronous) {
        try(penstock_request_wait(reader->request, &bytes));
        filled = reader->ahead;
        reader->ahead = reader->now;
        reader->now = filled;
        reader_begin(reader);
    } else {
        uint64_t count = least(reader->block, reader->end - reader->at);

        try(penstock_subfile_read_at(reader->subfile, reader->at * WIDTH, reader->now,
                                     count * WIDTH, &bytes));
        reader->at += count;
    }
    for (uint64_t i = 0; i < bytes / WIDTH; i++) {
        reader->now[i] ^= reader->direction;
    }
    return bytes / WIDTH;
}

static void reader_free(reader *reader)
{
    if (reader->is_asynchronous) {
        try(penstock_request_wait(reader->request, NULL));
    }
    free(reader->now);
    free(reader->ahead);
}

/* Writes records one after the other, in blocks. */
typedef struct writer {
    penstock_subfile *subfile;
    uint64_t at, filled, block; /* records */
    uint64_t direction;
    uint64_t *now, *behind;
    penstock_request *request; /* that writes `behind` */
    int is_asynchronous;
} writer;

static writer writer_of(penstock_subfile *subfile, uint64_t start, uint64_t block,
                        uint64_t direction, int is_asynchronous)
{
    writer writer = {subfile, start, 0, block, direction, NULL, NULL, NULL, is_asynchronous};

    writer.now = memory(block);
    writer.behind = is_asynchronous ? memory(block) : NULL;
    return writer;
}

static void writer_wait(writer *writer)
{
    if (writer->request != NULL) {
        try(penstock_request_wait(writer->request, NULL));
        writer->request = NULL;
    }
}

static void writer_flush(writer *writer)
{
    uint64_t *full = writer->now, bytes = writer->filled * WIDTH;

    if (writer->is_asynchronous) {
        writer_wait(writer);
        try(penstock_subfile_begin_write_at(writer->subfile, writer->at * WIDTH, full, bytes,
                                            &writer->request));
        writer->now = writer->behind;
        writer->behind = full;
    } else {
        try(penstock_subfile_write_at(writer->subfile, writer->at * WIDTH, full, bytes, NULL));
    }
    writer->at += writer->filled;
    writer->filled = 0;
}

static void writer_put(writer *writer, uint64_t record)
{
    writer->now[writer->filled++] = record ^ writer->direction;
    if (writer->filled == writer->block) {
        writer_flush(writer);
    }
}

static void writer_free(writer *writer)
{
    if (writer->filled > 0) {
        writer_flush(writer);
    }
    writer_wait(writer);
    free(writer->now);
    free(writer->behind);
}

/* ---------------------------------------------------------------------------------------------
 * Window_Sort
 */

typedef struct window_sort {
    penstock_subfile *scratch;
    uint64_t records, block;
    int is_asynchronous;
    int passes; /* how often all has been read and written */
} window_sort;

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

/* Sorts each window of `window` records of `source`, block by block, into `target`. */
static void sort_windows(const window_sort *sort, penstock_subfile *source,
                         penstock_subfile *target, uint64_t direction, uint64_t window,
                         uint64_t block)
{
    reader reader = reader_of(source, 0, UINT64_MAX / WIDTH, block, direction,
                              sort->is_asynchronous);
    writer writer = writer_of(target, 0, block, direction, sort->is_asynchronous);
    uint64_t count;

    while ((count = reader_next(&reader)) > 0) {
        for (uint64_t start = 0; start < count; start += window) {
            qsort(reader.now + start, least(window, count - start), WIDTH, compare);
        }
        for (uint64_t i = 0; i < count; i++) {
            writer_put(&writer, reader.now[i]);
        }
    }
    writer_free(&writer);
    reader_free(&reader);
}

/* Merges the sorted runs from `start` to `middle` and from there to `end`. */
static void merge(const window_sort *sort, penstock_subfile *source, penstock_subfile *target,
                  uint64_t direction, uint64_t start, uint64_t middle, uint64_t end)
{
    int ahead = sort->is_asynchronous;
    reader two[2] = {reader_of(source, start, middle, sort->block, direction, ahead),
                     reader_of(source, middle, end, sort->block, direction, ahead)};
    writer writer = writer_of(target, start, sort->block, direction, ahead);
    uint64_t count[2], at[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        count[i] = reader_next(&two[i]);
    }
    while (count[0] > 0 || count[1] > 0) {
        int from = count[0] == 0 || (count[1] > 0 && two[1].now[at[1]] < two[0].now[at[0]]);

        writer_put(&writer, two[from].now[at[from]++]);
        if (at[from] == count[from]) {
            count[from] = reader_next(&two[from]);
            at[from] = 0;
        }
    }
    writer_free(&writer);
    reader_free(&two[0]);
    reader_free(&two[1]);
}

/* Sorts each window of `window` records in place; with 0, the whole cell. */
static void window_sort_run(window_sort *sort, penstock_subfile *subfile, uint64_t direction,
                            uint64_t window)
{
    penstock_subfile *source, *target, *other;
    int merges = 0;

    sort->passes++;
    if (window > 0) {
        uint64_t windows = sort->block / window;

        sort_windows(sort, subfile, subfile, direction, window,
                     (windows > 0 ? windows : 1) * window);
        return;
    }
    /* Sorted runs of a block are merged two by two, from one subfile to another and back. */
    while (sort->block << merges < sort->records) {
        merges++;
    }
    source = merges % 2 ? sort->scratch : subfile;
    target = merges % 2 ? subfile : sort->scratch;
    sort_windows(sort, subfile, source, direction, sort->block, sort->block);
    for (int nth = 0; nth < merges; nth++) {
        uint64_t run = sort->block << nth;

        for (uint64_t start = 0; start < sort->records; start += 2 * run) {
            merge(sort, source, target, direction, start, least(start + run, sort->records),
                  least(start + 2 * run, sort->records));
        }
        other = source;
        source = target;
        target = other;
    }
    sort->passes += merges;
}

/* Sorts as one process of a team: Figure 5, line by line. */
static void fast_mesh_sort(MPI_Comm team, penstock_file *file, window_sort *sort)
{
    int tnum, processes, n = 0;
    penstock_subfile *sfd_col, *sfd_span;
    penstock_view column = PENSTOCK_WHOLE_FILE;

    MPI_Comm_rank(team, &tnum);
    MPI_Comm_size(team, &processes);
    while (1 << n < processes) {
        n++;
    }
    column.hn = (uint64_t)processes;
    try(penstock_subfile_open(file, &column, (uint64_t)tnum, PENSTOCK_BLOCK_ORDER, 0, NULL,
                              &sfd_col));
    for (int i = 0; i < n; i++) {
        uint64_t wide = UINT64_C(1) << (i + 1);
        penstock_view span = {1, wide, wide, UINT64_C(1) << (n - 1 - i)};

        window_sort_run(sort, sfd_col, (tnum & 1 << i) == 0 ? DOWN : UP, 0);
        MPI_Barrier(team);
        try(penstock_subfile_open(file, &span, (uint64_t)tnum, PENSTOCK_BLOCK_ORDER, 0, NULL,
                                  &sfd_span));
        window_sort_run(sort, sfd_span, DOWN, wide);
        penstock_subfile_free(sfd_span);
        MPI_Barrier(team);
    }
    window_sort_run(sort, sfd_col, DOWN, 0);
    penstock_subfile_free(sfd_col);
}

/* ---------------------------------------------------------------------------------------------
 * The records, and the check at the end
 */

/* The next of the random records whose state is at `state` (splitmix64). */
static uint64_t random_record(uint64_t *state)
{
    uint64_t bits = *state += UINT64_C(0x9E3779B97F4A7C15);

    bits = (bits ^ bits >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94D049BB133111EB);
    return bits ^ bits >> 31;
}

static uint64_t random_state(const options *options, uint64_t rank)
{
    return options->seed * UINT64_C(1000003) + rank;
}

/* Counts records, and sums them and their hashes up: no order changes these. */
typedef struct content {
    uint64_t count, sum, hashes;
} content;

static void content_add(content *content, uint64_t record)
{
    content->count++;
    content->sum += record;
    content->hashes += (record ^ record >> 29) * UINT64_C(0x9E3779B97F4A7C15);
}

static penstock_subfile *cell_of(penstock_file *file, uint64_t cells, uint64_t number)
{
    penstock_view view = PENSTOCK_WHOLE_FILE;
    penstock_subfile *cell;

    view.hn = cells;
    try(penstock_subfile_open(file, &view, number, PENSTOCK_BLOCK_ORDER, 0, NULL, &cell));
    return cell;
}

/* What is wrong, unless the cells one after the other are the records in order; else NULL. */
static const char *fault(penstock_fs *fs, uint64_t cells, const options *options)
{
    penstock_file *file;
    uint64_t before = 0;
    content made = {0, 0, 0}, found = {0, 0, 0};
    int is_sorted = 1;

    try(penstock_file_attach(fs, "/datafile", "r", 0, &file));
    for (uint64_t number = 0; number < cells; number++) {
        penstock_subfile *cell = cell_of(file, cells, number);
        reader reader = reader_of(cell, 0, options->records, options->block, DOWN, 0);
        uint64_t state = random_state(options, number), count;

        for (uint64_t i = 0; i < options->records; i++) {
            content_add(&made, random_record(&state));
        }
        while ((count = reader_next(&reader)) > 0) {
            for (uint64_t i = 0; i < count; i++) {
                is_sorted &= reader.now[i] >= before;
                before = reader.now[i];
                content_add(&found, before);
            }
        }
        reader_free(&reader);
        penstock_subfile_free(cell);
    }
    try(penstock_file_detach(file));
    if (!is_sorted) {
        return "a cell is not sorted, or does not follow on the last";
    }
    return memcmp(&made, &found, sizeof made) ? "the records are not those that were made" : NULL;
}

/* ---------------------------------------------------------------------------------------------
 * The job
 */

/* Fills a cell, and sorts with the others. */
static void work(penstock_fs *fs, int rank, int size, const options *options)
{
    penstock_file *file, *second;
    penstock_subfile *cell, *scratch;
    window_sort sort = {NULL, options->records, options->block, options->is_asynchronous, 0};
    writer writer;
    uint64_t state = random_state(options, (uint64_t)rank);
    double seconds;

    try(penstock_file_attach(fs, "/datafile", "r+", 0, &file));
    try(penstock_file_attach(fs, "/scratch", "r+", 0, &second));
    cell = cell_of(file, (uint64_t)size, (uint64_t)rank);
    scratch = cell_of(second, (uint64_t)size, (uint64_t)rank);
    writer = writer_of(cell, 0, options->block, DOWN, 0);
    for (uint64_t i = 0; i < options->records; i++) {
        writer_put(&writer, random_record(&state));
    }
    writer_free(&writer);
    try(penstock_file_sync(file));
    sort.scratch = scratch;
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    fast_mesh_sort(MPI_COMM_WORLD, file, &sort);
    try(penstock_file_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;
    penstock_subfile_free(cell);
    penstock_subfile_free(scratch);
    try(penstock_file_detach(file));
    try(penstock_file_detach(second));
    if (rank == 0) {
        double rate = size * (double)options->records / seconds;

        printf("%s: %.2f s, %.0f records/s; all was read and written %d times, %.1f MB/s\n",
               options->is_asynchronous ? "asynchronous" : "synchronous", seconds, rate,
               sort.passes, 2 * sort.passes * rate * WIDTH / 1e6);
    }
}

static uint64_t number_of(const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);

    if (*end != '\0' || end == text) {
        refuse("an option needs a number");
    }
    return number;
}

static options options_of(int count, char **words)
{
    options options = {1 << 18, 8192, 2, 0, 0, 0, NULL};
    int letter;

    opterr = 0; /* each rank would print what getopt says */
    while ((letter = getopt(count, words, "r:b:s:c:e:a")) != -1) {
        switch (letter) {
        case 'r': options.records = number_of(optarg); break;
        case 'b': options.block = number_of(optarg); break;
        case 's': options.servers = number_of(optarg); break;
        case 'c': options.cache = number_of(optarg); break;
        case 'e': options.seed = number_of(optarg); break;
        case 'a': options.is_asynchronous = 1; break;
        default: refuse("there is no such option");
        }
    }
    if (optind + 1 != count || options.records < 1 || options.block < 1 || options.servers < 1) {
        refuse("usage: fast_mesh_sort [-r RECORDS] [-b BLOCK] [-s SERVERS] [-c CACHE] [-e SEED] "
               "[-a] VOLUME");
    }
    options.volume = words[optind];
    return options;
}

/* Makes the volume, with the two files in it. */
static void prepare(uint64_t cells, const options *options)
{
    static const char *const paths[] = {"/datafile", "/scratch"};
    penstock_volume_options volume = PENSTOCK_VOLUME_OPTIONS_INIT;
    penstock_fs *fs;

    volume.servers = options->servers;
    try(penstock_volume_create(options->volume, &volume));
    try(penstock_fs_open(NULL, options->volume, NULL, &fs));
    for (int i = 0; i < 2; i++) {
        try(penstock_fs_create(fs, paths[i], cells, WIDTH, -1, 0644));
    }
    try(penstock_fs_close(fs));
}

int main(int count, char **words)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    penstock_fs_options how = PENSTOCK_FS_OPTIONS_INIT;
    penstock_fs *fs;
    options options;
    const char *wrong = NULL;
    uint64_t total;
    int rank, size;

    MPI_Init(&count, &words);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    options = options_of(count, words);
    if ((size & (size - 1)) != 0) {
        refuse("the number of processes must be a power of two");
    }
    total = (uint64_t)size * options.records * WIDTH;
    how.cache_bytes = options.cache ? options.cache : total / 8 / options.servers + 1;
    if (rank == 0) {
        printf("%d cells of %" PRIu64 " records: %.1f MB, %.1f times the servers' caches\n", size,
               options.records, (double)total / 1e6,
               (double)total / (double)(options.servers * how.cache_bytes));
        prepare((uint64_t)size, &options);
    }
    MPI_Barrier(comm);
    try(penstock_fs_open(&comm, options.volume, &how, &fs));
    work(fs, rank, size, &options);
    if (rank == 0) {
        wrong = fault(fs, (uint64_t)size, &options);
    }
    try(penstock_fs_close(fs));
    if (wrong != NULL) {
        fprintf(stderr, "error: %s\n", wrong);
    } else if (rank == 0) {
        printf("sorted: each cell, and the cells one after the other\n");
    }
    MPI_Finalize();
    return wrong != NULL;
}
