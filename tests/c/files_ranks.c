/* Parallel files used by the ranks of an MPI job, beside a naive model: collective calls, and errors
 * of one rank in each of them.
 *
 * files_ranks DIRECTORY: all checks, in an empty directory that all ranks see.
 * files_ranks DIRECTORY URL: those that servers which stand can take; their volume is empty. */
#include <mpi.h>

#include "files_suite.h"

#if MPI_VERSION >= 5 /* of the standard ABI there are no functions of Fortran's in C */
#define FORTRAN_COMM(comm) MPI_Comm_toint(comm)
#else
#define FORTRAN_COMM(comm) MPI_Comm_c2f(comm)
#endif

static int ranks;

static const int ORDERS[] = {PENSTOCK_BLOCK_ORDER, PENSTOCK_ROW_ORDER, PENSTOCK_COLUMN_ORDER};

static MPI_Comm world(void) { return MPI_COMM_WORLD; }

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

/* All ranks have the same code and text. */
static void same_error(int code)
{
    int least, most;
    char mine[1024] = "", first[1024];
    MPI_Allreduce(&code, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&code, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    const char *text = code == PENSTOCK_OK ? "none" : penstock_last_error()->text;
    if (least != most) FAIL("codes from %d to %d: %s", least, most, text);
    snprintf(mine, sizeof mine, "%s", text);
    memcpy(first, mine, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (strcmp(first, mine) != 0) FAIL("rank 0 has '%s', this one '%s'", first, mine);
}

/* The collective call fails on all ranks with this code and the same text. */
#define ALL_FAIL(wanted, call)                                                               \
    do {                                                                                     \
        int code_ = (call);                                                                  \
        same_error(code_);                                                                   \
        if (code_ != (wanted))                                                               \
            FAIL("%s: %s in place of %s", #call, penstock_code_name(code_),                  \
                 penstock_code_name(wanted));                                                \
    } while (0)

static void make(const char *path, uint64_t servers)
{
    penstock_volume_options options = PENSTOCK_VOLUME_OPTIONS_INIT;
    options.servers = servers;
    options.block_bytes = 4096;
    if (suite_rank == 0) FINE(penstock_volume_create(path, &options));
    barrier();
}

static penstock_fs *open_volume(const char *path)
{
    MPI_Comm comm = world();
    penstock_fs *fs;
    FINE(penstock_fs_open(&comm, path, NULL, &fs));
    CHECK(penstock_fs_rank(fs) == suite_rank && penstock_fs_clients(fs) == ranks);
    return fs;
}

/* --- opening --------------------------------------------------------------------------------- */

/* One rank's arguments are wrong, in every way, and all ranks hear of it. */
static void wrong_openings(const char *path, const char *missing)
{
    MPI_Comm comm = world();
    for (int who = 0; who < ranks; who += ranks > 1 ? ranks - 1 : 1) {
        int is_wrong = suite_rank == who;
        penstock_fs *fs = NULL;
        penstock_fs_options options = PENSTOCK_FS_OPTIONS_INIT;
        ALL_FAIL(PENSTOCK_ERR_SCHEMA, penstock_fs_open(&comm, path, NULL, is_wrong ? NULL : &fs));
        CHECK(penstock_last_error()->rank == who);
        ALL_FAIL(PENSTOCK_ERR_SCHEMA, penstock_fs_open(&comm, is_wrong ? NULL : path, NULL, &fs));
        if (is_wrong) options.size = 0;
        ALL_FAIL(PENSTOCK_ERR_SCHEMA, penstock_fs_open(&comm, path, &options, &fs));
        options = (penstock_fs_options)PENSTOCK_FS_OPTIONS_INIT;
        if (is_wrong) options.dedicated = 5;
        ALL_FAIL(PENSTOCK_ERR_SCHEMA, penstock_fs_open(&comm, path, &options, &fs));
        options = (penstock_fs_options)PENSTOCK_FS_OPTIONS_INIT;
        if (is_wrong) options.keys = "/no/such/keys";
        ALL_FAIL(PENSTOCK_ERR_SCHEMA, penstock_fs_open(&comm, is_wrong ? "penstock://:" : path,
                                                       &options, &fs));
        if (ranks > 1) {
            const char *url = "unix:///no/such/penstock.sock";
            ALL_FAIL(PENSTOCK_ERR_MISMATCH, penstock_fs_open(&comm, is_wrong ? url : path, NULL, &fs));
            options = (penstock_fs_options)PENSTOCK_FS_OPTIONS_INIT;
            if (is_wrong) options.cache_bytes = 1 << 20;
            ALL_FAIL(PENSTOCK_ERR_MISMATCH, penstock_fs_open(&comm, path, &options, &fs));
        }
        CHECK(fs == NULL);
    }
    penstock_fs *fs;
    CHECK(penstock_fs_open(&comm, missing, NULL, &fs) == PENSTOCK_ERR_MISSING);
    penstock_fs_options options = PENSTOCK_FS_OPTIONS_INIT;
    options.servers = 99;
    CHECK(penstock_fs_open(&comm, path, &options, &fs) == PENSTOCK_ERR_SCHEMA);
    comm = MPI_COMM_NULL;
    CHECK(penstock_fs_open(&comm, path, NULL, &fs) == PENSTOCK_ERR_SCHEMA);
}

/* Communicators of other kinds. */
static void communicators(const char *path)
{
    penstock_fs *fs;
    FINE(penstock_fs_open_f((int)FORTRAN_COMM(MPI_COMM_WORLD), path, NULL, &fs));
    CHECK(penstock_fs_rank(fs) == suite_rank && penstock_fs_clients(fs) == ranks);
    FINE(penstock_fs_close(fs));
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -suite_rank, &reversed);
    FINE(penstock_fs_open(&reversed, path, NULL, &fs));
    CHECK(penstock_fs_rank(fs) == ranks - 1 - suite_rank);
    FINE(penstock_fs_close(fs));
    MPI_Comm_free(&reversed);
    if (suite_rank == 0) {
        MPI_Comm self = MPI_COMM_SELF;
        FINE(penstock_fs_open(&self, path, NULL, &fs));
        CHECK(penstock_fs_clients(fs) == 1);
        FINE(penstock_fs_close(fs));
    }
    barrier();
}

/* --- collective reads and writes ------------------------------------------------------------- */

/* Ranks write disjoint subfiles of one view together, and read any subfiles of any views. */
static void any_program(penstock_fs *fs, int number)
{
    static model file;
    file = (model){.cells = 1 + chance(5), .bsu = 1 + chance(9)};
    if (suite_rank == 0) FINE(penstock_fs_create(fs, "/f", file.cells, file.bsu, -1, 0644));
    barrier();
    penstock_file *attached;
    FINE(penstock_file_attach_all(fs, "/f", "r+", number % 2, &attached));
    CHECK(penstock_file_cells(attached) == file.cells);
    for (int step = 0; step < 6; step++) {
        /* All ranks draw the same numbers, and know what the others do. */
        penstock_view view = {1 + chance(3), 1 + chance(3), 1 + chance(3), 1 + chance(3)};
        uint64_t subfiles = view.vn * view.hn, turn = chance(subfiles);
        int order = ORDERS[chance(3)], is_write = step % 2 == 0;
        for (int rank = 0; rank < ranks; rank++) {
            uint64_t offset = chance(60), count = chance(60), moved = 77, expected_moved;
            uint64_t subfile = (turn + (uint64_t)rank) % subfiles;
            unsigned char data[64], expected[64];
            for (int n = 0; n < 64; n++) data[n] = (unsigned char)chance(256);
            if (is_write && (uint64_t)rank >= subfiles) count = 0; /* no two write one subfile */
            place *places = places_of(&file, &view, subfile, order, offset, count);
            if (is_write) {
                expected_moved = model_write(&file, places, data, count);
                if (rank == suite_rank) {
                    FINE(penstock_file_write_all(attached, &view, subfile, order, offset,
                                                 count ? data : NULL, count, &moved));
                    CHECK(moved == expected_moved);
                }
            } else {
                memset(expected, 0xee, sizeof expected);
                expected_moved = model_read(&file, places, expected, count);
                if (rank == suite_rank) {
                    memset(data, 0xee, sizeof data);
                    FINE(penstock_file_read_all(attached, &view, subfile, order, offset, data, count,
                                                &moved));
                    CHECK(moved == expected_moved && !memcmp(data, expected, sizeof data));
                }
            }
            free(places);
        }
    }
    barrier();
    uint64_t ends[CELLS_MAX];
    FINE(penstock_fs_cell_bytes(fs, "/f", file.cells, ends));
    for (uint64_t cell = 0; cell < file.cells; cell++) CHECK(ends[cell] == file.ends[cell]);
    FINE(penstock_file_detach(attached));
    barrier();
    if (suite_rank == 0) FINE(penstock_fs_remove(fs, "/f"));
    barrier();
}

/* One rank's arguments are wrong in a call of all. */
static void wrong_calls(penstock_fs *fs, const char *directory)
{
    const int schema = PENSTOCK_ERR_SCHEMA;
    char memory[16] = "";
    uint64_t moved;
    const char *local = join_path(directory, "wrong"), *none = join_path(directory, "none");
    if (suite_rank == 0) {
        FINE(penstock_fs_create(fs, "/w", 2, 4, -1, 0644));
        FINE(penstock_fs_create(fs, "/other", 2, 4, -1, 0644));
        FILE *out = fopen(local, "wb");
        CHECK(out && fwrite(memory, 1, 16, out) == 16 && fclose(out) == 0);
    }
    barrier();
    for (int who = 0; who < ranks; who += ranks > 1 ? ranks - 1 : 1) {
        int is_wrong = suite_rank == who;
        penstock_file *file = NULL;
        ALL_FAIL(schema, penstock_file_attach_all(fs, is_wrong ? NULL : "/w", "r+", 0, &file));
        ALL_FAIL(schema, penstock_file_attach_all(fs, is_wrong ? "no path" : "/w", "r+", 0, &file));
        ALL_FAIL(schema, penstock_file_attach_all(fs, "/w", is_wrong ? "x" : "r+", 0, &file));
        ALL_FAIL(schema, penstock_file_attach_all(fs, "/w", is_wrong ? NULL : "r+", 0, &file));
        ALL_FAIL(schema, penstock_file_attach_all(fs, "/w", "r+", 0, is_wrong ? NULL : &file));
        ALL_FAIL(PENSTOCK_ERR_MISSING, penstock_file_attach_all(fs, "/none", "r+", 0, &file));
        if (ranks > 1)
            ALL_FAIL(PENSTOCK_ERR_MISMATCH,
                     penstock_file_attach_all(fs, is_wrong ? "/other" : "/w", "r+", 0, &file));
        CHECK(file == NULL);

        FINE(penstock_file_attach_all(fs, "/w", "r+", 0, &file));
        penstock_view good = {1, 1, 1, (uint64_t)ranks}, empty = {0, 1, 1, 1};
        const penstock_view *view = is_wrong ? &empty : &good;
        uint64_t mine = (uint64_t)suite_rank, far = is_wrong ? (uint64_t)ranks : mine;
        void *null = is_wrong ? NULL : memory;
        ALL_FAIL(schema, penstock_file_write_all(file, view, mine, 0, 0, memory, 4, &moved));
        ALL_FAIL(schema, penstock_file_write_all(file, &good, far, 0, 0, memory, 4, &moved));
        ALL_FAIL(schema, penstock_file_write_all(file, &good, mine, is_wrong ? 9 : 0, 0, memory, 4,
                                                 &moved));
        ALL_FAIL(schema, penstock_file_write_all(file, &good, mine, 0, 0, null, 4, &moved));
        ALL_FAIL(schema, penstock_file_write_all(file, &good, mine, 0, 0, memory,
                                                 is_wrong ? SIZE_MAX : 4, &moved));
        ALL_FAIL(schema, penstock_file_read_all(file, view, mine, 0, 0, memory, 4, &moved));
        ALL_FAIL(schema, penstock_file_read_all(file, &good, far, 0, 0, memory, 4, &moved));
        ALL_FAIL(schema, penstock_file_read_all(file, &good, mine, is_wrong ? -1 : 0, 0, memory, 4,
                                                &moved));
        ALL_FAIL(schema, penstock_file_read_all(file, &good, mine, 0, 0, null, 4, &moved));
        ALL_FAIL(schema, penstock_file_read_all(file, &good, mine, 0, is_wrong ? UINT64_MAX : 0,
                                                memory, 4, &moved));
        if (ranks > 1) {
            ALL_FAIL(PENSTOCK_ERR_OVERLAP,
                     penstock_file_write_all(file, NULL, 0, 0, 0, memory, 4, &moved));
            int code = is_wrong ? penstock_file_read_all(file, NULL, 0, 0, 0, memory, 4, &moved)
                                : penstock_file_write_all(file, &good, mine, 0, 0, memory, 4, &moved);
            ALL_FAIL(PENSTOCK_ERR_MISMATCH, code);
        }
        FINE(penstock_file_write_all(file, &good, mine, 0, 0, memory, 4, NULL)); /* it still works */
        FINE(penstock_file_detach(file));
        FINE(penstock_file_attach_all(fs, "/w", "r", 0, &file));
        ALL_FAIL(PENSTOCK_ERR_READ_ONLY,
                 penstock_file_write_all(file, &good, mine, 0, 0, memory, 4, &moved));
        FINE(penstock_file_detach(file));

        penstock_transfer_options options = PENSTOCK_TRANSFER_OPTIONS_INIT;
        options.overwrite = 1;
        ALL_FAIL(schema, penstock_fs_import_all(fs, is_wrong ? NULL : local, "/w", &options, &moved));
        ALL_FAIL(schema, penstock_fs_import_all(fs, local, is_wrong ? "w" : "/w", &options, &moved));
        ALL_FAIL(PENSTOCK_ERR_MISSING,
                 penstock_fs_import_all(fs, is_wrong ? none : local, "/w", &options, &moved));
        ALL_FAIL(schema, penstock_fs_export_all(fs, "/w", is_wrong ? NULL : none, &options, &moved));
        ALL_FAIL(schema, penstock_fs_export_all(fs, is_wrong ? NULL : "/w", none, &options, &moved));
        if (is_wrong) options.size = 0;
        ALL_FAIL(schema, penstock_fs_import_all(fs, local, "/w", &options, &moved));
        ALL_FAIL(schema, penstock_fs_export_all(fs, "/w", none, &options, &moved));
        options = (penstock_transfer_options)PENSTOCK_TRANSFER_OPTIONS_INIT;
        if (is_wrong) options.order = 17;
        ALL_FAIL(schema, penstock_fs_import_all(fs, local, "/w", &options, &moved));
        ALL_FAIL(schema, penstock_fs_export_all(fs, "/w", none, &options, &moved));
        options = (penstock_transfer_options)PENSTOCK_TRANSFER_OPTIONS_INIT;
        if (is_wrong) options.view = &empty;
        ALL_FAIL(schema, penstock_fs_import_all(fs, local, "/w", &options, &moved));
        ALL_FAIL(schema, penstock_fs_export_all(fs, "/w", none, &options, &moved));
    }
    barrier();
    if (suite_rank == 0) {
        FINE(penstock_fs_remove(fs, "/w"));
        FINE(penstock_fs_remove(fs, "/other"));
        CHECK(remove(local) == 0);
    }
    barrier();
}

/* --- sharing --------------------------------------------------------------------------------- */

static void shared_pointer(penstock_fs *fs)
{
    enum { RECORDS = 20, RECORD_BYTES = 100 };
    penstock_pointer token;
    penstock_subfile *open;
    penstock_file *file;
    unsigned char record[RECORD_BYTES];
    uint64_t moved;
    if (suite_rank == 0) FINE(penstock_fs_create(fs, "/p", 3, 64, -1, 0644));
    barrier();
    FINE(penstock_file_attach(fs, "/p", "r+", 0, &file));
    if (suite_rank == 0) {
        FINE(penstock_subfile_open(file, NULL, 0, 0, 0, NULL, &open));
        FINE(penstock_subfile_share(open, &token));
        penstock_subfile_free(open);
    }
    MPI_Bcast(&token, sizeof token, MPI_BYTE, 0, MPI_COMM_WORLD);
    FINE(penstock_subfile_open(file, NULL, 0, 0, 0, &token, &open));
    memset(record, suite_rank + 1, sizeof record);
    for (int n = 0; n < RECORDS; n++) FINE(penstock_subfile_write(open, record, sizeof record, NULL));
    barrier();
    int counts[64] = {0};
    for (int n = 0; n < RECORDS * ranks; n++) {
        FINE(penstock_subfile_read_at(open, (uint64_t)n * RECORD_BYTES, record, RECORD_BYTES, &moved));
        CHECK(moved == RECORD_BYTES && record[0] >= 1 && record[0] <= ranks);
        for (int byte = 1; byte < RECORD_BYTES; byte++) CHECK(record[byte] == record[0]);
        counts[record[0]]++;
    }
    for (int rank = 1; rank <= ranks; rank++) CHECK(counts[rank] == RECORDS);
    penstock_subfile_free(open);
    FINE(penstock_file_detach(file));
    barrier();
    if (suite_rank == 0) FINE(penstock_fs_remove(fs, "/p"));
    barrier();
}

static void transfers(penstock_fs *fs, const char *directory)
{
    enum { BYTES = 240000 };
    static unsigned char data[BYTES], back[BYTES];
    const char *from = join_path(directory, "from"), *to = join_path(directory, "to");
    uint64_t moved;
    for (int n = 0; n < BYTES; n++) data[n] = (unsigned char)chance(256);
    if (suite_rank == 0) {
        FILE *out = fopen(from, "wb");
        CHECK(out && fwrite(data, 1, BYTES, out) == BYTES && fclose(out) == 0);
    }
    barrier();
    for (int n = 0; n < 3; n++) {
        penstock_view view = {2, 1, 2, 3};
        penstock_transfer_options options = PENSTOCK_TRANSFER_OPTIONS_INIT;
        options.view = &view;
        options.subfile = 1;
        options.order = ORDERS[n];
        options.cells = 6;
        options.bsu_bytes = 1000;
        options.memory_bytes = ORDERS[n] == PENSTOCK_COLUMN_ORDER ? 0 : 30000;
        FINE(penstock_fs_import_all(fs, from, "/i", &options, &moved));
        CHECK(moved == BYTES);
        penstock_file *file;
        penstock_subfile *open;
        FINE(penstock_file_attach(fs, "/i", "r", 0, &file));
        FINE(penstock_subfile_open(file, &view, 1, ORDERS[n], 0, NULL, &open));
        FINE(penstock_subfile_read_at(open, 0, back, BYTES, &moved));
        CHECK(moved == BYTES && memcmp(back, data, BYTES) == 0);
        penstock_subfile_free(open);
        FINE(penstock_file_detach(file));
        FINE(penstock_fs_export_all(fs, "/i", to, &options, &moved));
        CHECK(moved == BYTES);
        if (suite_rank == 0) {
            FILE *in = fopen(to, "rb");
            CHECK(in && fread(back, 1, BYTES, in) == BYTES && fgetc(in) == EOF && fclose(in) == 0);
            CHECK(memcmp(back, data, BYTES) == 0);
        }
        barrier();
        ALL_FAIL(PENSTOCK_ERR_EXISTS, penstock_fs_export_all(fs, "/i", to, &options, NULL));
        options.overwrite = 1;
        FINE(penstock_fs_export_all(fs, "/i", to, &options, NULL));
        barrier();
        if (suite_rank == 0) {
            CHECK(remove(to) == 0);
            FINE(penstock_fs_remove(fs, "/i"));
        }
        barrier();
    }
    if (suite_rank == 0) CHECK(remove(from) == 0);
    barrier();
}

/* --- ends ------------------------------------------------------------------------------------ */

static void dedicated(const char *path)
{
    MPI_Comm comm = world();
    penstock_fs_options options = PENSTOCK_FS_OPTIONS_INIT;
    penstock_fs *fs;
    options.dedicated = PENSTOCK_YES;
    if (ranks == 1) {
        FAILS(PENSTOCK_ERR_SCHEMA, "no client", penstock_fs_open(&comm, path, &options, &fs));
        return;
    }
    FINE(penstock_fs_open(&comm, path, &options, &fs));
    int is_server = penstock_fs_rank(fs) == -1, servers;
    if (is_server) {
        FAILS(PENSTOCK_ERR_SCHEMA, "served", penstock_fs_sync(fs));
        CHECK(penstock_fs_clients(fs) == -1 && penstock_fs_block_bytes(fs) == 0);
    } else {
        CHECK(penstock_fs_clients(fs) == ranks - 1);
        if (penstock_fs_rank(fs) == 0) FINE(penstock_fs_mkdir(fs, "/dedicated", 0755));
    }
    FINE(penstock_fs_close(fs));
    MPI_Allreduce(&is_server, &servers, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(servers == 1);
    fs = open_volume(path);
    penstock_stat stat;
    FINE(penstock_fs_stat(fs, "/dedicated", &stat));
    FINE(penstock_fs_close(fs));
}

/* A rank that leaves ends the calls of the others, which say who it was. */
static void one_leaves(const char *path)
{
    if (ranks == 1) return;
    for (int way = 0; way < 3; way++) {
        penstock_fs *fs = open_volume(path);
        penstock_file *file = NULL;
        int code;
        if (suite_rank == ranks - 1) {
            penstock_fs_leave(fs, "by chance");
            barrier();
            continue;
        }
        if (way == 0) {
            code = penstock_fs_close(fs);
        } else {
            code = way == 1 ? penstock_file_attach_all(fs, "/f", "r", 0, &file)
                            : penstock_fs_import_all(fs, "x", "/x", NULL, NULL);
        }
        CHECK(code == PENSTOCK_ERR_PEER);
        CHECK(strstr(penstock_last_error()->text, "by chance"));
        CHECK(penstock_last_error()->rank == ranks - 1);
        if (way > 0) CHECK(penstock_fs_close(fs) == PENSTOCK_ERR_PEER);
        barrier();
    }
}

static void shared_checks(penstock_fs *fs, const char *directory)
{
    for (int number = 0; number < 12; number++) any_program(fs, number);
    wrong_calls(fs, directory);
    shared_pointer(fs);
    transfers(fs, directory);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &suite_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(argc == 2 || argc == 3);
    if (argc == 3) {
        penstock_fs *fs = open_volume(argv[2]);
        shared_checks(fs, argv[1]);
        FINE(penstock_fs_close(fs));
    } else {
        uint64_t servers[] = {1, 3, (uint64_t)ranks + 2}; /* more than ranks, too */
        for (int n = 0; n < 3; n++) {
            char path[4200];
            snprintf(path, sizeof path, "%s/v%d", argv[1], n);
            make(path, servers[n]);
            if (n == 1) wrong_openings(path, join_path(argv[1], "none"));
            if (n == 1) communicators(path);
            penstock_fs *fs = open_volume(path);
            CHECK(penstock_fs_servers(fs) == (int64_t)servers[n]);
            shared_checks(fs, argv[1]);
            FINE(penstock_fs_close(fs));
            if (n == 0) dedicated(path);
            one_leaves(path);
        }
        /* Python looks at this one. */
        penstock_fs *fs = open_volume(join_path(argv[1], "v1"));
        penstock_view view = {1, 1, 1, (uint64_t)ranks};
        penstock_file *file;
        unsigned char data[5000];
        memset(data, suite_rank + 1, sizeof data);
        if (suite_rank == 0) FINE(penstock_fs_create(fs, "/left", (uint64_t)ranks, 100, 0, 0644));
        barrier();
        FINE(penstock_file_attach_all(fs, "/left", "w", 0, &file));
        FINE(penstock_file_write_all(file, &view, (uint64_t)suite_rank, 0, 0, data, sizeof data, NULL));
        FINE(penstock_file_detach(file));
        FINE(penstock_fs_close(fs));
    }
    if (suite_rank == 0) printf("all right, %d ranks\n", ranks);
    MPI_Finalize();
    return 0;
}
