/* All that one process can ask without others: arguments that are wrong, what arrays say of
 * themselves, copies, checks, descriptions, seats.
 *
 *     program DIRECTORY */
#define main main_of_ranks
#include "core_ranks.h"
#undef main

#include <math.h>

static int rank_main(struct rank *rank) { return rank->ranks - 1; }

static char *in(const char *directory, const char *name) {
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static void words(void) {
    const char *names[] = {"Ok",   "Schema", "Mismatch", "Overlap",     "Missing", "Damaged", "ReadOnly",
                           "Full", "Busy",   "Peer",     "Unsupported", "Io",      "Exists"};
    char version[64];
    for (int code = 0; code <= PENSTOCK_ERR_EXISTS; code++)
        CHECK(strcmp(penstock_code_name(code), names[code]) == 0);
    CHECK(strcmp(penstock_code_name(99), "Unknown") == 0);
    snprintf(version, sizeof version, "%d.%d.%d", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR,
             PENSTOCK_VERSION_PATCH);
    CHECK(strcmp(penstock_version(), version) == 0);
    CHECK(penstock_last_error() == NULL);
    penstock_free(NULL);
}

/* NULL in place of every handle is an error, or nothing; never a crash. */
static void nulls(void) {
    penstock_report report;
    penstock_memory memory = {&report, NULL, NULL};
    penstock_locals locals = {1, &memory};
    uint64_t number;
    char *text = (char *)1;
    int flag;
    penstock_session_close(NULL);
    penstock_session_leave(NULL, NULL);
    penstock_seat_free(NULL);
    penstock_list_free(NULL);
    penstock_array_free(NULL);
    penstock_group_free(NULL);
    penstock_checkpoint_free(NULL);
    CHECK(penstock_session_rank(NULL) == -1 && penstock_session_size(NULL) == 0);
    CHECK(penstock_session_servers(NULL) == 0 && penstock_session_is_client(NULL) == 0);
    CHECK(penstock_list_elements(NULL) == 0 && penstock_array_dims(NULL) == 0);
    CHECK(penstock_array_name(NULL) == NULL && penstock_array_shape(NULL) == NULL);
    CHECK(penstock_array_dtype(NULL) == NULL && penstock_array_element_bytes(NULL) == 0);
    CHECK(penstock_open_array_name(NULL) == NULL && penstock_open_array_dims(NULL) == 0);
    CHECK(penstock_open_array_shape(NULL) == NULL && penstock_open_array_dtype(NULL) == NULL);
    CHECK(penstock_checkpoint_step(NULL) == 0 && isnan(penstock_checkpoint_time(NULL)));
    CHECK(penstock_checkpoint_timesteps(NULL) == 0);
    CHECK(penstock_open_array_close(NULL) == PENSTOCK_OK);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_session_open(NULL, NULL, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_session_barrier(NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_session_refuse(NULL, 1, "a", "b"));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_seats_create(1, NULL, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_write(NULL, "x", NULL, NULL, &report));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_read(NULL, "x", NULL, NULL, &report));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_split_test(NULL, &flag));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_split_end(NULL, &report));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_explain(NULL, "x", NULL, 1, NULL, &text));
    CHECK(text == NULL);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_timestep(NULL, NULL, &locals, NULL, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_open_array_read(NULL, NULL, NULL, &memory));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_open_array_flush(NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_local_bytes(NULL, 0, &number));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_natural(NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_set_keep(NULL, 1));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_copy(NULL, "x", NULL, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_verify("x", NULL, &text));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_describe("x", NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_repair(NULL, &text));
}

static void lists(void) {
    penstock_list *list;
    uint64_t large[] = {UINT64_MAX, 2};
    MUST(penstock_list_runs(2, (uint64_t[]){4, 0}, (uint64_t[]){3, 2}, &list));
    CHECK(penstock_list_elements(list) == 5);
    penstock_list_free(list);
    MUST(penstock_list_runs(0, NULL, NULL, &list));
    CHECK(penstock_list_elements(list) == 0);
    penstock_list_free(list);
    MUST(penstock_list_strided(5, 2, 2, (uint64_t[]){2, 3}, (int64_t[]){100, -2}, &list));
    CHECK(penstock_list_elements(list) == 12);
    penstock_list_free(list);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_list_strided(1, 2, 1, (uint64_t[]){2}, (int64_t[]){-2}, &list));
    CHECK(list == NULL);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_list_runs(2, large, large, &list));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_list_runs(1, NULL, large, &list));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_list_runs(SIZE_MAX, large, large, &list));
    FAILS(PENSTOCK_ERR_SCHEMA,
          penstock_list_strided(0, 1, 1, (uint64_t[]){2}, (int64_t[]){INT64_MIN}, &list));
}

static void arrays(void) {
    penstock_array *array, *copy;
    uint64_t shape[4], first, block, stride, extent, bytes;
    size_t count;
    char *text;
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create("u", 1, (uint64_t[]){4}, "f3", &array));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create("u", 1, (uint64_t[]){4}, ">f8", &array));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create("u", 1, (uint64_t[]){1ull << 63}, "f8", &array));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create("u", 1000, (uint64_t[]){4}, "f8", &array));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create("u", 1, NULL, "f8", &array));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create(NULL, 1, (uint64_t[]){4}, "f8", &array));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create("u", 1, (uint64_t[]){4}, "f8", NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create("u", 2, (uint64_t[]){4, PENSTOCK_ROWS}, "f8", &array));
    CHECK(array == NULL);
    MUST(penstock_array_create("u", 2, (uint64_t[]){10, 9}, "c8", &array));
    CHECK(strcmp(penstock_array_name(array), "u") == 0 && penstock_array_dims(array) == 2);
    CHECK(penstock_array_shape(array)[0] == 10 && penstock_array_shape(array)[1] == 9);
    CHECK(strcmp(penstock_array_dtype(array), "c8") == 0);
    CHECK(penstock_array_element_bytes(array) == 8);
    MUST(penstock_array_local_bytes(array, 0, &bytes));
    CHECK(bytes == 720);
    MUST(penstock_array_local_bytes(array, 1, &bytes));
    CHECK(bytes == 0);
    MUST(penstock_array_set_distribution(array, "CYCLIC(3),BLOCK", 2, (uint64_t[]){2, 2},
                                         (uint64_t[]){1, 2, 0, 3}));
    MUST(penstock_array_copy(array, &copy));
    MUST(penstock_array_local_count(array, 3, &count));
    CHECK(count == 1);
    MUST(penstock_array_local_shape(array, 3, 0, shape)); /* rows 3, 4, 5, 9; columns 5 to 8 */
    CHECK(shape[0] == 4 + 3 && shape[1] == 4 + 3);
    MUST(penstock_array_local_indices(array, 3, 0, 0, &first, &block, &stride, &extent));
    CHECK(first == 3 && block == 3 && stride == 6 && extent == 4);
    MUST(penstock_array_local_indices(array, 3, 0, 1, &first, &block, &stride, &extent));
    CHECK(first == 5 && extent == 4);
    MUST(penstock_array_local_shape(array, 4, 0, shape)); /* beyond the mesh: nothing, no halo */
    CHECK(shape[0] * shape[1] == 0);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_local_indices(array, 3, 1, 0, &first, &block, &stride, &extent));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_local_indices(array, 3, 0, 2, &first, &block, &stride, &extent));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_local_indices(array, 3, 0, 0, NULL, &block, &stride, &extent));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_local_count(array, -1, &count));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_local_shape(array, 3, 0, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_distribution(array, "BLOCK", 1, (uint64_t[]){2}, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_distribution(array, "BLOCK,*", 2, (uint64_t[]){2, 2}, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_distribution(array, "WAVE,*", 1, (uint64_t[]){2}, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_distribution(array, "BLOCK,*", 1, NULL, NULL));
    MUST(penstock_array_local_shape(array, 3, 0, shape)); /* as before what was refused */
    CHECK(shape[0] == 7);
    MUST(penstock_array_set_boxes(array, 2, (uint64_t[]){0, 0, 5, 5}, (uint64_t[]){2, 3, 1, 4}, NULL));
    MUST(penstock_array_local_count(array, 0, &count));
    CHECK(count == 2);
    MUST(penstock_array_local_shape(array, 0, 1, shape));
    CHECK(shape[0] == 1 && shape[1] == 4);
    MUST(penstock_array_local_bytes(array, 0, &bytes));
    CHECK(bytes == 80);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_boxes(array, SIZE_MAX, shape, shape, NULL));
    MUST(penstock_array_set_boxes(array, 0, NULL, NULL, NULL));
    MUST(penstock_array_local_count(array, 0, &count));
    CHECK(count == 0);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_list(array, NULL, NULL));
    penstock_list *list;
    MUST(penstock_list_runs(1, (uint64_t[]){88}, (uint64_t[]){3}, &list));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_list(array, list, NULL)); /* of 90 elements */
    penstock_list_free(list);
    MUST(penstock_list_runs(1, (uint64_t[]){80}, (uint64_t[]){3}, &list));
    MUST(penstock_array_set_list(array, list, NULL));
    penstock_list_free(list);
    MUST(penstock_array_local_shape(array, 0, 0, shape));
    CHECK(shape[0] == 3);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_local_indices(array, 0, 0, 0, &first, &block, &stride, &extent));
    struct { const char *disk; } expected[] = {
        {"natural chunking"}, {"chunks [4, 3], zstd:3"},
        {"shards [4, 6] of sub-chunks [2, 3], none"}, {"row-major, npy"}, {"parts BLOCK,* over [3]"},
        {"HDF5 /g/u"}, {"NetCDF-4, chunks [2, 3], shuffle+deflate:1"}, {"shares as chunks, none"},
        {"shares as shards of sub-chunks [1, 2], zstd:3"}};
    for (int nth = 0; nth < 9; nth++) {
        if (nth == 0) MUST(penstock_array_set_natural(array));
        if (nth == 1) MUST(penstock_array_set_chunks(array, (uint64_t[]){4, 3}, NULL, "zstd:3"));
        if (nth == 2) MUST(penstock_array_set_chunks(array, (uint64_t[]){4, 6}, (uint64_t[]){2, 3}, NULL));
        if (nth == 3) MUST(penstock_array_set_row_major(array, "npy"));
        if (nth == 4) MUST(penstock_array_set_parts(array, "BLOCK,*", 1, (uint64_t[]){3}));
        if (nth == 5) MUST(penstock_array_set_dataset(array, "hdf5", "/g/u", NULL, NULL));
        if (nth == 6)
            MUST(penstock_array_set_dataset(array, "netcdf", NULL, (uint64_t[]){2, 3},
                                            "shuffle+deflate:1"));
        if (nth == 7) MUST(penstock_array_set_shares(array, NULL, NULL));
        if (nth == 8) MUST(penstock_array_set_shares(array, (uint64_t[]){1, 2}, "zstd:3"));
        MUST(penstock_array_disk(array, &text));
        CHECK(strcmp(text, expected[nth].disk) == 0);
        penstock_free(text);
    }
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_row_major(array, "csv"));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_dataset(array, "hdf4", NULL, NULL, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_dataset(array, NULL, NULL, NULL, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_attributes(array, "[]"));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_attributes(array, NULL));
    MUST(penstock_array_set_attributes(array, "{\"b\": 1, \"a\": \"\\u00e4\"}"));
    MUST(penstock_array_attributes(array, &text));
    CHECK(strcmp(text, "{\"b\":1,\"a\":\"\xc3\xa4\"}") == 0);
    penstock_free(text);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_dimension_names(array, (const char *[]){"x", NULL}));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_fill(array, NULL));
    MUST(penstock_array_local_shape(copy, 3, 0, shape)); /* the copy has not changed */
    CHECK(shape[0] == 7);
    penstock_array_free(copy);
    penstock_array_free(array);
    MUST(penstock_array_create("flags", 0, NULL, "bool", &array));
    CHECK(strcmp(penstock_array_dtype(array), "bool") == 0);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_fill(array, "\2"));
    MUST(penstock_array_local_shape(array, 0, 0, NULL));
    penstock_array_free(array);
    const char *no_records[] = {"[]", "[('x', 'f8'), ('x', 'f8')]", "[('x', '>f8')]", "[('x', 'f8'", "[('', '|V4')]",
                                "[('x', 'f8'), ('', '|V4')]", "[('x', 'U4')]", "[('x', 'f8', (0,))]"};
    for (size_t i = 0; i < sizeof no_records / sizeof *no_records; i++)
        FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_create("u", 1, (uint64_t[]){4}, no_records[i], &array));
    MUST(penstock_array_create("records", 1, (uint64_t[]){4}, "[('x', '=f8'), ('v', 'i2', 3)]", &array));
    CHECK(strcmp(penstock_array_dtype(array), "[('x', 'f8'), ('v', 'i2', (3,))]") == 0);
    CHECK(penstock_array_element_bytes(array) == 14);
    MUST(penstock_array_set_fill(array, "\1\2\3\4\5\6\7\10\11\12\13\14\15\16"));
    penstock_array_free(array);
    MUST(penstock_array_create("rows", 2, (uint64_t[]){PENSTOCK_ROWS, 3}, "i4", &array));
    CHECK(penstock_array_shape(array)[0] == PENSTOCK_ROWS);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_local_shape(array, 0, 0, shape));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_array_set_distribution(array, "BLOCK,*", 1, (uint64_t[]){1}, NULL));
    penstock_array_free(array);
}

static int stop_at_once(uint64_t done, uint64_t all, void *context) {
    CHECK(done <= all);
    ++*(int *)context;
    return 1;
}

static int go_on(uint64_t done, uint64_t all, void *context) {
    uint64_t *told = context;
    CHECK(done >= told[0] && done <= all);
    told[0] = done;
    told[1] = all;
    return 0;
}

/* A call from within a call of the same session is refused. */
static int call_again(uint64_t done, uint64_t all, void *context) {
    (void)done, (void)all;
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_session_barrier(context));
    CHECK(says("in use"));
    return 0;
}

static void stores(const char *directory) {
    penstock_session_options options = PENSTOCK_SESSION_OPTIONS_INIT;
    penstock_copy_options how = PENSTOCK_COPY_OPTIONS_INIT;
    penstock_copy_report copied;
    penstock_session *session;
    penstock_array *array, *found;
    int32_t values[8 * 6], back[8 * 6];
    uint64_t damages, told[2] = {0, 0};
    int stops = 0;
    char *text, *store = in(directory, "store"), *npy = in(directory, "u.npy");
    options.root = directory;
    MUST(penstock_session_open(NULL, &options, &session));
    for (int nth = 0; nth < 48; nth++)
        values[nth] = nth * nth - 7;
    MUST(penstock_array_create("u", 2, (uint64_t[]){8, 6}, "i4", &array));
    MUST(penstock_array_set_chunks(array, (uint64_t[]){4, 4}, NULL, "zstd:1+crc32c"));
    MUST(penstock_array_set_attributes(array, "{\"units\":\"m\"}"));
    FAILS(PENSTOCK_ERR_MISSING, penstock_read(session, "store", array, back, NULL));
    CHECK(penstock_last_error()->path != NULL && penstock_last_error()->rank == -1);
    MUST(penstock_write(session, "store", array, values, NULL)); /* below the root */
    MUST(penstock_explain(session, "store", array, 1, "two-phase", &text));
    CHECK(strstr(text, "two-phase") != NULL);
    penstock_free(text);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_explain(session, "store", array, 1, "by-magic", &text));
    MUST(penstock_array_open(session, store, "u", &found)); /* by its whole path */
    MUST(penstock_array_disk(found, &text));
    CHECK(strcmp(text, "chunks [4, 4], zstd:1+crc32c") == 0);
    penstock_free(text);
    MUST(penstock_read(session, store, found, back, NULL));
    CHECK(memcmp(values, back, sizeof values) == 0);
    penstock_array_free(found);
    FAILS(PENSTOCK_ERR_MISSING, penstock_array_open(session, "nowhere", NULL, &found));
    CHECK(found == NULL);
    MUST(penstock_describe(store, &text));
    CHECK(strstr(text, "\"units\"") != NULL);
    penstock_free(text);
    FAILS(PENSTOCK_ERR_MISSING, penstock_describe(in(directory, "nowhere"), &text));
    CHECK(text == NULL);
    MUST(penstock_verify(store, &damages, &text));
    CHECK(damages == 0);
    penstock_free(text);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_repair(store, &text)); /* no group of timesteps */
    how.progress = go_on, how.context = told, how.drop_attributes = 1, how.ranks = 2;
    MUST(penstock_copy(store, npy, &how, &copied)); /* its name says what it is */
    CHECK(copied.bytes == sizeof values && copied.slabs > 0 && copied.slabs_found == 0);
    CHECK(told[0] == told[1] && told[0] == sizeof values);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_copy(store, npy, &how, NULL)); /* it is there already */
    how.overwrite = 1, how.codec = "none";
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_copy(store, npy, &how, NULL));
    how = (penstock_copy_options)PENSTOCK_COPY_OPTIONS_INIT;
    how.progress = call_again, how.context = session;
    how.chunks = "3,-1", how.codec = "gzip:2", how.name = "v", how.arrays = "u";
    MUST(penstock_session_copy(session, "store", "copy", &how, &copied));
    MUST(penstock_array_open(session, "copy", "v", &found));
    MUST(penstock_array_disk(found, &text));
    CHECK(strcmp(text, "chunks [3, 6], gzip:2") == 0);
    penstock_free(text);
    MUST(penstock_read(session, "copy", found, back, NULL));
    CHECK(memcmp(values, back, sizeof values) == 0);
    penstock_array_free(found);
    how = (penstock_copy_options)PENSTOCK_COPY_OPTIONS_INIT;
    how.raw_dims = 1, how.raw_shape = (uint64_t[]){4};
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_copy(store, in(directory, "raw"), &how, NULL));
    how = (penstock_copy_options)PENSTOCK_COPY_OPTIONS_INIT;
    how.progress = stop_at_once, how.context = &stops;
    FAILS(PENSTOCK_ERR_PEER, penstock_copy(store, in(directory, "stopped"), &how, NULL));
    CHECK(stops == 1);
    FAILS(PENSTOCK_ERR_PEER, penstock_session_copy(session, "store", "stopped", &how, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_session_barrier(session)); /* its session is over */
    MUST(penstock_session_close(session));
    FILE *chunk = fopen(in(directory, "store/u/c/0/0"), "r+b");
    CHECK(chunk != NULL && fputc(0x55, chunk) == 0x55 && fclose(chunk) == 0);
    MUST(penstock_verify(store, &damages, &text));
    CHECK(damages > 0 && strlen(text) > 0);
    penstock_free(text);
    penstock_array_free(array);
}

static void splits_of_a_closed_session(const char *directory) {
    penstock_session *session;
    penstock_array *array;
    penstock_split *split;
    penstock_open_array *open;
    double value = 5;
    penstock_memory memory = {&value, NULL, NULL};
    MUST(penstock_session_open(NULL, NULL, &session));
    MUST(penstock_array_create("u", 0, NULL, "f8", &array));
    MUST(penstock_array_set_chunks(array, NULL, NULL, NULL));
    MUST(penstock_write(session, in(directory, "scalar"), array, &value, NULL));
    MUST(penstock_open_array_open(session, in(directory, "scalar"), NULL, 0, &open));
    FAILS(PENSTOCK_ERR_READ_ONLY, penstock_open_array_write(open, NULL, NULL, &memory));
    MUST(penstock_begin_write(session, in(directory, "forgotten"), array, 1, &memory, NULL, &split));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_session_close(session)); /* it has ended the call itself */
    CHECK(says("never ended"));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_split_end(split, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_open_array_read(open, NULL, NULL, &memory));
    MUST(penstock_open_array_close(open));
    MUST(penstock_session_open(NULL, NULL, &session));
    value = 0;
    MUST(penstock_read(session, in(directory, "forgotten"), array, &value, NULL));
    CHECK(value == 5);
    penstock_array_free(array);
    penstock_session_leave(session, NULL);
}

/* A session whose other seat is given up fails, and does not wait. */
static void seats(void) {
    penstock_seat *both[2];
    penstock_session *session;
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_seats_create(0, NULL, both));
    MUST(penstock_seats_create(2, NULL, both));
    penstock_seat_free(both[1]);
    MUST(penstock_seat_open(both[0], &session));
    CHECK(penstock_session_size(session) == 2);
    FAILS(PENSTOCK_ERR_PEER, penstock_session_barrier(session));
    CHECK(says("freed"));
    penstock_session_leave(session, "so does this one");
    MUST(penstock_seats_create(2, NULL, both));
    MUST(penstock_seat_open(both[0], &session));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_seat_open(both[1], NULL));
    FAILS(PENSTOCK_ERR_PEER, penstock_session_barrier(session));
    penstock_session_leave(session, NULL);
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_seat_open(NULL, &session));
    CHECK(session == NULL);
}

static void groups(const char *directory) {
    penstock_session *session;
    penstock_group *group;
    penstock_array *array, *region, *time;
    double values[4] = {0, 1, 2, 3};
    float latitudes[2] = {-0.5f, 0.5f};
    penstock_memory memory = {values, NULL, NULL};
    penstock_locals locals = {1, &memory};
    const char *names[] = {"here", "there"}, *lat[] = {"lat"};
    MUST(penstock_session_open(NULL, NULL, &session));
    MUST(penstock_array_create("u", 2, (uint64_t[]){2, 2}, "f8", &array));
    MUST(penstock_array_set_dimension_names(array, (const char *[]){"lat", "lon"}));
    MUST(penstock_array_copy(array, &region));
    MUST(penstock_array_set_region_boxes(region, 0, NULL, NULL));
    MUST(penstock_array_create("time", 1, (uint64_t[]){2}, "f8", &time));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_create("g", NULL, &group));
    MUST(penstock_group_create("g", in(directory, "group"), &group));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_timestep(session, group, &locals, NULL, NULL));
    CHECK(says("no array"));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_add(group, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_add(group, time));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_add(group, region));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_replace(group, array));
    MUST(penstock_group_add(group, array));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_add(group, array));
    MUST(penstock_group_replace(group, array));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_set_keep(group, 0));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_set_time_chunk(group, 0));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_set_attributes(group, "7"));
    MUST(penstock_group_set_attributes(group, "{\"title\":\"a test\"}"));
    MUST(penstock_group_set_time_attributes(group, "{\"units\":\"s\"}"));
    MUST(penstock_group_set_time_chunk(group, 4));
    MUST(penstock_group_add_coordinate(group, "lat", 1, lat, (uint64_t[]){2}, "f4", latitudes,
                                       "{\"units\":\"degrees_north\"}"));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_add_coordinate(group, "lat", 1, lat, (uint64_t[]){2},
                                                             "f4", latitudes, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_add_coordinate(group, "b", 1, NULL, (uint64_t[]){2},
                                                             "f4", latitudes, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_add_coordinate(group, "b", 1, lat, (uint64_t[]){2},
                                                             "f4", NULL, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_group_add_coordinate(
                                   group, "b", 1, lat, (uint64_t[]){UINT64_MAX}, "f4", values, NULL));
    MUST(penstock_group_add_labels(group, "place", 1, lat, (uint64_t[]){2}, names, NULL));
    penstock_call_options options = PENSTOCK_CALL_OPTIONS_INIT;
    MUST(penstock_timestep(session, group, &locals, NULL, NULL));
    options.time = 2.5;
    MUST(penstock_timestep(session, group, &locals, &options, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, penstock_timestep(session, group, &locals, &options, NULL));
    penstock_group_free(group);
    penstock_array_free(array);
    penstock_array_free(region);
    penstock_array_free(time);
    MUST(penstock_session_close(session));
}

int main(int argc, char **argv) {
    penstock_session *session = (penstock_session *)1;
    int no_communicator = 0;
    CHECK(argc == 2);
    words();
    nulls();
    lists();
    arrays();
    FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_session_open(&no_communicator, NULL, &session));
    CHECK(session == NULL && says("no MPI library"));
    FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_session_open_f(0, NULL, &session));
    stores(argv[1]);
    splits_of_a_closed_session(argv[1]);
    seats();
    groups(argv[1]);
    (void)main_of_ranks;
    return 0;
}
