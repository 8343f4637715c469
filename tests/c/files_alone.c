/* Parallel files in one process: every function of the header's last part that is not collective over
 * MPI, beside a naive model.
 *
 * files_alone DIRECTORY: all checks, in an empty directory.
 * files_alone URL: those that servers which stand can take; their volume is empty. */
#include "files_suite.h"

#include <pthread.h>
#include <unistd.h>

static const int ORDERS[] = {PENSTOCK_BLOCK_ORDER, PENSTOCK_ROW_ORDER, PENSTOCK_COLUMN_ORDER};

/* --- names ----------------------------------------------------------------------------------- */

static void names(penstock_fs *fs)
{
    penstock_stat stat;
    FINE(penstock_fs_mkdir(fs, "/d", 0750));
    FINE(penstock_fs_create(fs, "/d/f", 5, 7, penstock_fs_servers(fs) - 1, 0640));
    FINE(penstock_fs_create(fs, "/d/g", 1, 1, -1, 0644));
    FINE(penstock_fs_mkdir(fs, "/d/sub", 0755));
    FINE(penstock_fs_symlink(fs, "../where/ever", "/d/link"));

    FINE(penstock_fs_stat(fs, "/d/f", &stat));
    CHECK(stat.kind == PENSTOCK_FILE && stat.mode == 0640 && stat.owner == getuid());
    CHECK(stat.cells == 5 && stat.bsu_bytes == 7 && stat.checkpoints == 0 && stat.bytes == 0);
    CHECK(stat.base == (uint64_t)penstock_fs_servers(fs) - 1);
    CHECK(stat.created > 1500000000000000000u && stat.modified >= stat.created);
    FINE(penstock_fs_stat(fs, "/d", &stat));
    CHECK(stat.kind == PENSTOCK_DIRECTORY && stat.mode == 0750 && stat.cells == 0);
    FINE(penstock_fs_stat(fs, "/d/link", &stat));
    CHECK(stat.kind == PENSTOCK_SYMLINK && stat.bytes == strlen("../where/ever"));

    char *target;
    FINE(penstock_fs_readlink(fs, "/d/link", &target));
    CHECK(strcmp(target, "../where/ever") == 0);
    penstock_free(target);
    FAILS(PENSTOCK_ERR_SCHEMA, "no symbolic link", penstock_fs_readlink(fs, "/d/f", &target));

    size_t count;
    char *listed;
    FINE(penstock_fs_list(fs, "/d", &count, &listed));
    const char *expected[] = {"f", "g", "link", "sub/"}, *name = listed;
    CHECK(count == 4);
    for (size_t n = 0; n < count; n++, name += strlen(name) + 1) CHECK(!strcmp(name, expected[n]));
    penstock_free(listed);
    FINE(penstock_fs_list(fs, "/d/sub", &count, &listed));
    CHECK(count == 0);
    penstock_free(listed);

    FINE(penstock_fs_chmod(fs, "/d/g", 0600));
    FINE(penstock_fs_stat(fs, "/d/g", &stat));
    CHECK(stat.mode == 0600);
    uint32_t group = stat.group;
    if (geteuid() == 0) {
        FINE(penstock_fs_chown(fs, "/d/g", 1234, -1));
        FINE(penstock_fs_stat(fs, "/d/g", &stat));
        CHECK(stat.owner == 1234 && stat.group == group);
        FINE(penstock_fs_chown(fs, "/d/g", -1, 4321));
        FINE(penstock_fs_stat(fs, "/d/g", &stat));
        CHECK(stat.owner == 1234 && stat.group == 4321);
    }
    FINE(penstock_fs_rename(fs, "/d/g", "/h"));
    FAILS(PENSTOCK_ERR_MISSING, "/d/g", penstock_fs_stat(fs, "/d/g", &stat));
    FINE(penstock_fs_stat(fs, "/h", &stat));
    FAILS(PENSTOCK_ERR_EXISTS, "", penstock_fs_rename(fs, "/h", "/d/f"));
    FAILS(PENSTOCK_ERR_EXISTS, "", penstock_fs_remove(fs, "/d"));
    FAILS(PENSTOCK_ERR_EXISTS, "", penstock_fs_mkdir(fs, "/d", 0755));
    FAILS(PENSTOCK_ERR_MISSING, "", penstock_fs_create(fs, "/no/f", 1, 1, -1, 0644));

    /* Canonical order: the BSUs of all cells, row by row. */
    uint64_t ends[6] = {9, 9, 9, 9, 9, 9};
    FINE(penstock_fs_resize(fs, "/d/f", 5 * 7 + 10));
    FINE(penstock_fs_stat(fs, "/d/f", &stat));
    CHECK(stat.bytes == 45);
    FINE(penstock_fs_cell_bytes(fs, "/d/f", 6, ends));
    CHECK(ends[0] == 14 && ends[1] == 10 && ends[2] == 7 && ends[4] == 7 && ends[5] == 0);
    FINE(penstock_fs_resize_cells(fs, "/d/f", 100));
    FINE(penstock_fs_cell_bytes(fs, "/d/f", 5, ends));
    for (int cell = 0; cell < 5; cell++) CHECK(ends[cell] == 100);
    FINE(penstock_fs_cell_bytes(fs, "/d/f", 0, NULL));

    const char *gone[] = {"/d/f", "/d/link", "/d/sub", "/d", "/h"};
    for (int n = 0; n < 5; n++) FINE(penstock_fs_remove(fs, gone[n]));
    FINE(penstock_fs_list(fs, "/", &count, &listed));
    CHECK(count == 0);
    penstock_free(listed);
}

static void status(penstock_fs *fs)
{
    penstock_file *file;
    char *json;
    FINE(penstock_fs_create(fs, "/s", 2, 2, -1, 0644));
    FINE(penstock_fs_status(fs, "/s", &json));
    CHECK(strcmp(json, "[]") == 0);
    penstock_free(json);
    FINE(penstock_file_attach(fs, "/s", "w", 1, &file));
    FINE(penstock_fs_status(fs, "/s", &json));
    CHECK(strstr(json, "\"reads\":false") && strstr(json, "\"writes\":true"));
    CHECK(strstr(json, "\"reckless\":true") && strstr(json, "\"program\":"));
    penstock_free(json);
    CHECK(penstock_file_cells(file) == 2 && penstock_file_bsu_bytes(file) == 2);
    CHECK(penstock_file_base(file) < (uint64_t)penstock_fs_servers(fs));
    FINE(penstock_file_detach(file));
    FINE(penstock_fs_remove(fs, "/s"));
}

/* --- subfiles -------------------------------------------------------------------------------- */

static void model_resize(model *file, uint64_t bytes)
{
    for (uint64_t cell = 0; cell < file->cells; cell++) {
        if (bytes > file->ends[cell])
            memset(file->bytes[cell] + file->ends[cell], 0, bytes - file->ends[cell]);
        file->ends[cell] = bytes;
    }
}

/* Random accesses, checkpoints, rollbacks and resizes, each compared with the model. */
static void any_program(penstock_fs *fs, int number)
{
    static model file, kept, then;
    file = (model){.cells = 1 + chance(5), .bsu = 1 + chance(9)};
    int has_kept = 0;
    penstock_file *attached;
    FINE(penstock_fs_create(fs, "/f", file.cells, file.bsu, -1, 0644));
    FINE(penstock_file_attach(fs, "/f", "r+", number % 2, &attached));
    for (int step = 0; step < 12; step++) {
        uint64_t what = chance(8), offset = chance(60), count = chance(60);
        if (what == 0) {
            FINE(penstock_file_checkpoint(attached));
            kept = file;
            has_kept = 1;
            continue;
        }
        if (what == 1) {
            if (has_kept) {
                FINE(penstock_file_rollback(attached));
                file = kept;
            } else {
                FAILS(PENSTOCK_ERR_MISSING, "checkpoint", penstock_file_rollback(attached));
            }
            continue;
        }
        if (what == 2) {
            FINE(penstock_fs_resize_cells(fs, "/f", count));
            model_resize(&file, count);
            continue;
        }
        penstock_view view = {1 + chance(3), 1 + chance(3), 1 + chance(3), 1 + chance(3)};
        uint64_t subfile = chance(view.vn * view.hn), moved = 77;
        int order = ORDERS[chance(3)], of_checkpoint = has_kept && what == 3;
        penstock_subfile *open;
        FINE(penstock_subfile_open(attached, &view, subfile, order, of_checkpoint, NULL, &open));
        place *places = places_of(&file, &view, subfile, order, offset, count);
        unsigned char data[64], expected[64];
        if (what > 4) {
            for (uint64_t n = 0; n < count; n++) data[n] = (unsigned char)chance(256);
            FINE(penstock_subfile_write_at(open, offset, data, count, &moved));
            CHECK(moved == model_write(&file, places, data, count));
        }
        then = of_checkpoint ? kept : file;
        memset(data, 0xee, sizeof data);
        memset(expected, 0xee, sizeof expected);
        FINE(penstock_subfile_read_at(open, offset, data, count, &moved));
        CHECK(moved == model_read(&then, places, expected, count));
        CHECK(memcmp(data, expected, sizeof data) == 0);
        free(places);
        penstock_subfile_free(open);
    }
    uint64_t ends[CELLS_MAX];
    FINE(penstock_fs_cell_bytes(fs, "/f", file.cells, ends));
    for (uint64_t cell = 0; cell < file.cells; cell++) CHECK(ends[cell] == file.ends[cell]);
    FINE(penstock_file_detach(attached));
    FINE(penstock_fs_remove(fs, "/f"));
}

static void pointers(penstock_fs *fs)
{
    penstock_file *file;
    penstock_subfile *one, *two, *other;
    uint64_t at, moved;
    char text[16] = "";
    FINE(penstock_fs_create(fs, "/p", 3, 4, -1, 0644));
    FINE(penstock_file_attach(fs, "/p", "r+", 0, &file));
    FINE(penstock_subfile_open(file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, NULL, &one));
    FINE(penstock_subfile_write(one, "0123456789", 10, NULL));
    FINE(penstock_subfile_seek(one, 0, PENSTOCK_SEEK_CUR, &at));
    CHECK(at == 10);
    FINE(penstock_subfile_seek(one, -6, PENSTOCK_SEEK_CUR, &at));
    CHECK(at == 4);
    FINE(penstock_subfile_read(one, text, 3, &moved));
    CHECK(moved == 3 && !memcmp(text, "456", 3));
    FINE(penstock_subfile_read_at(one, 0, text, 2, NULL));
    FINE(penstock_subfile_seek(one, 0, PENSTOCK_SEEK_CUR, &at));
    CHECK(at == 7);
    FINE(penstock_subfile_seek(one, 2, PENSTOCK_SEEK_SET, NULL));
    FINE(penstock_subfile_read(one, text, 2, NULL));
    CHECK(!memcmp(text, "23", 2));
    FAILS(PENSTOCK_ERR_SCHEMA, "", penstock_subfile_seek(one, -1, PENSTOCK_SEEK_SET, &at));
    FAILS(PENSTOCK_ERR_SCHEMA, "", penstock_subfile_seek(one, -99, PENSTOCK_SEEK_CUR, &at));
    FAILS(PENSTOCK_ERR_SCHEMA, "", penstock_subfile_seek(one, 0, 7, &at));

    /* A pointer that is shared has one place for all who have its token. */
    penstock_pointer token, again;
    FINE(penstock_subfile_share(one, &token));
    FINE(penstock_subfile_share(one, &again));
    CHECK(token.server == again.server && token.number == again.number);
    FINE(penstock_subfile_open(file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, &token, &two));
    FINE(penstock_subfile_read(two, text, 3, &moved));
    CHECK(moved == 3 && !memcmp(text, "456", 3));
    FINE(penstock_subfile_read(one, text, 3, &moved));
    CHECK(moved == 3 && !memcmp(text, "789", 3));
    token.number += 1000;
    FINE(penstock_subfile_open(file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, &token, &other));
    FAILS(PENSTOCK_ERR_MISSING, "", penstock_subfile_read(other, text, 1, &moved));
    penstock_subfile_free(other);
    penstock_subfile_free(two);
    penstock_subfile_free(one);
    FINE(penstock_file_detach(file));
    FINE(penstock_fs_remove(fs, "/p"));
}

static void requests(penstock_fs *fs)
{
    enum { COUNT = 8, BYTES = 50000 };
    static unsigned char written[COUNT][BYTES], read[COUNT][BYTES];
    penstock_file *file;
    penstock_subfile *open;
    penstock_request *all[COUNT];
    uint64_t moved;
    FINE(penstock_fs_create(fs, "/r", 4, 1000, -1, 0644));
    FINE(penstock_file_attach(fs, "/r", "r+", 0, &file));
    FINE(penstock_subfile_open(file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, NULL, &open));
    for (int n = 0; n < COUNT; n++) {
        for (int byte = 0; byte < BYTES; byte++) written[n][byte] = (unsigned char)chance(256);
        FINE(penstock_subfile_begin_write_at(open, n * BYTES, written[n], BYTES, &all[n]));
    }
    for (int n = COUNT; n-- > 0;) {
        FINE(penstock_request_wait(all[n], &moved));
        CHECK(moved == BYTES);
    }
    for (int n = 0; n < COUNT; n++)
        FINE(penstock_subfile_begin_read_at(open, n * BYTES, read[n], BYTES, &all[n]));
    for (int n = 0; n < COUNT; n++) {
        int has_ended = 0;
        while (!has_ended) FINE(penstock_request_test(all[n], &has_ended));
        FINE(penstock_request_wait(all[n], &moved));
        CHECK(moved == BYTES && memcmp(read[n], written[n], BYTES) == 0);
    }
    /* A request may outlive its subfile. */
    FINE(penstock_subfile_begin_read_at(open, 0, read[0], BYTES, &all[0]));
    penstock_subfile_free(open);
    FINE(penstock_request_wait(all[0], NULL));
    FINE(penstock_file_detach(file));

    /* One that fails is freed, too, and says why. */
    FINE(penstock_file_attach(fs, "/r", "r", 0, &file));
    FINE(penstock_subfile_open(file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, NULL, &open));
    FINE(penstock_subfile_begin_write_at(open, 0, written[0], 10, &all[0]));
    FAILS(PENSTOCK_ERR_READ_ONLY, "", penstock_request_wait(all[0], &moved));
    penstock_subfile_free(open);
    FINE(penstock_file_detach(file));
    FINE(penstock_fs_remove(fs, "/r"));
}

static void hints(penstock_fs *fs)
{
    penstock_file *file;
    penstock_subfile *open;
    char *text;
    static char zeros[100000];
    FINE(penstock_fs_create(fs, "/x", 3, 100, 0, 0644));
    FINE(penstock_file_attach(fs, "/x", "r+", 0, &file));
    FINE(penstock_subfile_open(file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, NULL, &open));
    FINE(penstock_subfile_write_at(open, 0, zeros, sizeof zeros, NULL));
    FINE(penstock_subfile_flush(open, 0, sizeof zeros));
    FINE(penstock_subfile_sync(open));
    FINE(penstock_subfile_prefetch(open, 0, sizeof zeros));
    FINE(penstock_subfile_explain(open, 0, 0, 250, &text));
    CHECK(strstr(text, "read") && strstr(text, "250") && strstr(text, "message"));
    penstock_free(text);
    FINE(penstock_subfile_explain(open, 1, 0, 250, &text));
    CHECK(strstr(text, "write") && strstr(text, "250"));
    penstock_free(text);
    FINE(penstock_file_sync(file));
    FINE(penstock_fs_sync(fs));
    penstock_subfile_free(open);
    FINE(penstock_file_detach(file));
    FINE(penstock_fs_remove(fs, "/x"));
}

/* --- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, RECORDS = 50, RECORD_BYTES = 128 };

static penstock_file *shared_file;
static penstock_pointer shared_pointer;

/* Writes records of its own where the shared pointer is. */
static void *write_records(void *number)
{
    penstock_subfile *open;
    unsigned char record[RECORD_BYTES];
    memset(record, (int)(intptr_t)number, sizeof record);
    FINE(penstock_subfile_open(shared_file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, &shared_pointer, &open));
    for (int n = 0; n < RECORDS; n++) FINE(penstock_subfile_write(open, record, sizeof record, NULL));
    penstock_subfile_free(open);
    /* Errors are those of their threads. */
    char message[64];
    snprintf(message, sizeof message, "/thread-%d", (int)(intptr_t)number);
    penstock_subfile *none;
    FAILS(PENSTOCK_ERR_SCHEMA, "9", penstock_subfile_open(shared_file, NULL, 9, 0, 0, NULL, &none));
    return NULL;
}

static void threads(penstock_fs *fs)
{
    pthread_t all[THREADS];
    penstock_subfile *open;
    FINE(penstock_fs_create(fs, "/t", 3, 100, -1, 0644));
    FINE(penstock_file_attach(fs, "/t", "r+", 0, &shared_file));
    FINE(penstock_subfile_open(shared_file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, NULL, &open));
    FINE(penstock_subfile_share(open, &shared_pointer));
    for (intptr_t n = 0; n < THREADS; n++)
        CHECK(pthread_create(&all[n], NULL, write_records, (void *)(n + 1)) == 0);
    for (int n = 0; n < THREADS; n++) CHECK(pthread_join(all[n], NULL) == 0);
    int counts[THREADS + 1] = {0};
    for (int n = 0; n < THREADS * RECORDS; n++) {
        unsigned char record[RECORD_BYTES];
        uint64_t moved;
        FINE(penstock_subfile_read_at(open, (uint64_t)n * RECORD_BYTES, record, RECORD_BYTES, &moved));
        CHECK(moved == RECORD_BYTES && record[0] >= 1 && record[0] <= THREADS);
        for (int byte = 0; byte < RECORD_BYTES; byte++) CHECK(record[byte] == record[0]);
        counts[record[0]]++;
    }
    for (int n = 1; n <= THREADS; n++) CHECK(counts[n] == RECORDS);
    penstock_subfile_free(open);
    FINE(penstock_file_detach(shared_file));
    FINE(penstock_fs_remove(fs, "/t"));
}

/* --- space ----------------------------------------------------------------------------------- */

static void space(penstock_fs *fs)
{
    penstock_usage usage;
    static char data[300000];
    penstock_file *file;
    penstock_subfile *open;
    memset(data, 1, sizeof data);
    FINE(penstock_fs_create(fs, "/q", 4, 512, -1, 0644));
    FINE(penstock_file_attach(fs, "/q", "r+", 0, &file));
    FINE(penstock_subfile_open(file, NULL, 0, PENSTOCK_BLOCK_ORDER, 0, NULL, &open));
    FINE(penstock_subfile_write_at(open, 0, data, sizeof data, NULL));
    FINE(penstock_fs_sync(fs));
    FINE(penstock_fs_usage(fs, -1, &usage));
    CHECK(usage.quota == -1 && usage.of_user >= sizeof data && usage.used >= usage.of_user);
    CHECK(usage.bytes >= usage.used);
    FINE(penstock_fs_usage(fs, 65533, &usage));
    CHECK(usage.of_user == 0);
    FINE(penstock_fs_quota(fs, getuid(), 400000));
    FINE(penstock_fs_usage(fs, -1, &usage));
    CHECK(usage.quota <= 400000 && usage.quota > 400000 - 4096); /* whole blocks */
    int code = PENSTOCK_OK;
    for (int n = 1; n < 10 && code == PENSTOCK_OK; n++) {
        code = penstock_subfile_write_at(open, n * sizeof data, data, sizeof data, NULL);
        if (code == PENSTOCK_OK) code = penstock_file_sync(file);
    }
    CHECK(code == PENSTOCK_ERR_FULL);
    FINE(penstock_fs_quota(fs, getuid(), -1));
    FINE(penstock_fs_usage(fs, getuid(), &usage));
    CHECK(usage.quota == -1);
    penstock_subfile_free(open);
    FINE(penstock_file_detach(file));
    FINE(penstock_fs_remove(fs, "/q"));

    char *text;
    uint64_t servers[] = {0};
    FINE(penstock_fs_rebalance(fs, 1, servers, &text));
    CHECK(strstr(text, "have moved"));
    penstock_free(text);
    FINE(penstock_fs_rebalance(fs, 0, NULL, NULL));
    servers[0] = 99;
    FAILS(PENSTOCK_ERR_SCHEMA, "", penstock_fs_rebalance(fs, 1, servers, NULL));
}

/* --- import and export ----------------------------------------------------------------------- */

static void put(const char *path, const unsigned char *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    CHECK(out && fwrite(data, 1, bytes, out) == bytes && fclose(out) == 0);
}

static size_t get(const char *path, unsigned char *data, size_t most)
{
    FILE *in = fopen(path, "rb");
    CHECK(in != NULL);
    size_t bytes = fread(data, 1, most, in);
    CHECK(fclose(in) == 0);
    return bytes;
}

static void transfers(penstock_fs *fs, const char *directory)
{
    /* An order within one access depends on its end: there it is that of whole rows. */
    enum { BYTES = 70001, ROWS_BYTES = 70144 };
    static unsigned char data[ROWS_BYTES], back[ROWS_BYTES + 1];
    for (int n = 0; n < ROWS_BYTES; n++) data[n] = (unsigned char)chance(256);
    const char *from = join_path(directory, "from"), *to = join_path(directory, "to");
    put(from, data, BYTES);

    uint64_t moved;
    penstock_stat stat;
    FINE(penstock_fs_import(fs, from, "/i", NULL, &moved));
    CHECK(moved == BYTES);
    FINE(penstock_fs_stat(fs, "/i", &stat));
    CHECK(stat.cells == (uint64_t)penstock_fs_servers(fs) && stat.bytes == BYTES);
    CHECK(stat.bsu_bytes == penstock_fs_block_bytes(fs) && stat.mode == 0644);
    FINE(penstock_fs_remove(fs, "/i"));

    for (int n = 0; n < 3; n++) {
        int is_column = ORDERS[n] == PENSTOCK_COLUMN_ORDER;
        uint64_t count = is_column ? ROWS_BYTES : BYTES;
        put(from, data, count);
        penstock_view view = {2, 1, 1, 2};
        penstock_transfer_options options = PENSTOCK_TRANSFER_OPTIONS_INIT;
        options.view = &view;
        options.subfile = 1;
        options.order = ORDERS[n];
        options.cells = 4;
        options.bsu_bytes = 64;
        options.base = 0;
        options.mode = 0600;
        options.memory_bytes = is_column ? 0 : 9999;
        FINE(penstock_fs_import(fs, from, "/i", &options, &moved));
        CHECK(moved == count);
        FINE(penstock_fs_stat(fs, "/i", &stat));
        CHECK(stat.cells == 4 && stat.bsu_bytes == 64 && stat.base == 0 && stat.mode == 0600);

        /* The subfile is what was imported; the checkpoint stays what it was. */
        penstock_file *file;
        penstock_subfile *open;
        FINE(penstock_file_attach(fs, "/i", "r+", 0, &file));
        FINE(penstock_subfile_open(file, &view, 1, ORDERS[n], 0, NULL, &open));
        FINE(penstock_subfile_read_at(open, 0, back, count, &moved));
        CHECK(moved == count && memcmp(back, data, count) == 0);
        FINE(penstock_file_checkpoint(file));
        FINE(penstock_subfile_write_at(open, 100, "other", 5, NULL));
        options.of_checkpoint = 1;
        FINE(penstock_fs_export(fs, "/i", to, &options, &moved));
        CHECK(get(to, back, sizeof back) >= count);
        CHECK(memcmp(back, data, count) == 0);
        FAILS(PENSTOCK_ERR_EXISTS, "", penstock_fs_export(fs, "/i", to, &options, NULL));
        options.of_checkpoint = 0;
        options.overwrite = 1;
        FINE(penstock_fs_export(fs, "/i", to, &options, &moved));
        CHECK(get(to, back, sizeof back) >= count);
        CHECK(is_column || (memcmp(back, data, 100) == 0 && memcmp(back + 100, "other", 5) == 0));
        CHECK(remove(to) == 0);
        penstock_subfile_free(open);
        FINE(penstock_file_detach(file));
        FINE(penstock_fs_remove(fs, "/i"));
    }
    penstock_transfer_options options = PENSTOCK_TRANSFER_OPTIONS_INIT;
    FAILS(PENSTOCK_ERR_MISSING, "nothing",
          penstock_fs_import(fs, join_path(directory, "nothing"), "/i", &options, NULL));
    FAILS(PENSTOCK_ERR_MISSING, "", penstock_fs_export(fs, "/nothing", to, &options, NULL));
    options.size = 0;
    FAILS(PENSTOCK_ERR_SCHEMA, "INIT", penstock_fs_import(fs, from, "/i", &options, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, "NULL", penstock_fs_import(fs, NULL, "/i", NULL, NULL));
    CHECK(remove(from) == 0);
}

/* --- errors ---------------------------------------------------------------------------------- */

static void errors(penstock_fs *fs)
{
    const int schema = PENSTOCK_ERR_SCHEMA;
    penstock_file *file, *kept = (penstock_file *)&file;
    penstock_subfile *open;
    penstock_request *request;
    penstock_view empty = {1, 0, 1, 1};
    penstock_stat stat;
    char memory[8];
    size_t count;
    char *text;
    int has_ended;
    FINE(penstock_fs_create(fs, "/e", 2, 2, -1, 0644));
    file = kept;
    FAILS(schema, "access", penstock_file_attach(fs, "/e", "rw", 0, &file));
    FAILS(schema, "NULL", penstock_file_attach(fs, NULL, "r", 0, &file));
    FAILS(schema, "NULL", penstock_file_attach(fs, "/e", NULL, 0, &file));
    FAILS(schema, "NULL", penstock_file_attach(NULL, "/e", "r", 0, &file));
    FAILS(schema, "NULL", penstock_file_attach(fs, "/e", "r", 0, NULL));
    FAILS(PENSTOCK_ERR_MISSING, "/no", penstock_file_attach(fs, "/no", "r", 0, &file));
    CHECK(file == kept); /* results are left alone */
    FAILS(schema, "", penstock_fs_mkdir(fs, "relative", 0755));
    FAILS(schema, "UTF-8", penstock_fs_mkdir(fs, "/\xff", 0755));
    FAILS(schema, "permission", penstock_fs_mkdir(fs, "/d", 0100644));
    FAILS(schema, "server", penstock_fs_create(fs, "/d", 1, 1, -2, 0644));
    FAILS(schema, "", penstock_fs_create(fs, "/d", 1, 1, 1000, 0644));
    FAILS(schema, "", penstock_fs_create(fs, "/d", 0, 1, -1, 0644));
    FAILS(schema, "", penstock_fs_create(fs, "/d", 1, 0, -1, 0644));
    FAILS(schema, "user", penstock_fs_chown(fs, "/e", -2, -1));
    FAILS(schema, "quota", penstock_fs_quota(fs, 1, -2));
    FAILS(schema, "NULL", penstock_fs_stat(fs, "/e", NULL));
    FAILS(schema, "NULL", penstock_fs_stat(NULL, "/e", &stat));
    FAILS(schema, "NULL", penstock_fs_usage(fs, -1, NULL));
    FAILS(schema, "NULL", penstock_fs_list(fs, "/", NULL, &text));
    FAILS(schema, "NULL", penstock_fs_list(fs, "/", &count, NULL));
    FAILS(schema, "NULL", penstock_fs_cell_bytes(fs, "/e", 1, NULL));
    FAILS(schema, "NULL", penstock_fs_symlink(fs, NULL, "/d"));
    FAILS(schema, "NULL", penstock_fs_rename(fs, "/e", NULL));
    FAILS(schema, "NULL", penstock_fs_rebalance(fs, 2, NULL, NULL));
    FAILS(schema, "NULL", penstock_fs_sync(NULL));

    FINE(penstock_file_attach(fs, "/e", "r", 0, &file));
    FAILS(schema, "", penstock_subfile_open(file, &empty, 0, 0, 0, NULL, &open));
    FAILS(schema, "order", penstock_subfile_open(file, NULL, 0, 3, 0, NULL, &open));
    FAILS(schema, "", penstock_subfile_open(file, NULL, 1, 0, 0, NULL, &open));
    FAILS(schema, "NULL", penstock_subfile_open(file, NULL, 0, 0, 0, NULL, NULL));
    FAILS(schema, "NULL", penstock_subfile_open(NULL, NULL, 0, 0, 0, NULL, &open));
    FINE(penstock_subfile_open(file, NULL, 0, 0, 0, NULL, &open));
    FAILS(PENSTOCK_ERR_READ_ONLY, "", penstock_subfile_write(open, "x", 1, NULL));
    FAILS(schema, "NULL", penstock_subfile_read(open, NULL, 1, NULL));
    FAILS(schema, "bytes", penstock_subfile_read(open, memory, SIZE_MAX, NULL));
    FINE(penstock_subfile_read(open, NULL, 0, NULL));
    FAILS(schema, "NULL", penstock_subfile_begin_read_at(open, 0, memory, 8, NULL));
    FAILS(schema, "NULL", penstock_subfile_begin_read_at(open, 0, NULL, 8, &request));
    FAILS(schema, "NULL", penstock_request_wait(NULL, NULL));
    FAILS(schema, "NULL", penstock_request_test(NULL, &has_ended));
    FAILS(schema, "NULL", penstock_subfile_share(open, NULL));
    FAILS(schema, "NULL", penstock_subfile_explain(open, 0, 0, 1, NULL));
    FAILS(schema, "NULL", penstock_subfile_sync(NULL));
    FAILS(schema, "NULL", penstock_file_sync(NULL));
    FAILS(schema, "NULL", penstock_file_checkpoint(NULL));
    CHECK(penstock_file_cells(NULL) == 0 && penstock_fs_rank(NULL) == -1);
    penstock_subfile_free(open);
    penstock_subfile_free(NULL);
    FINE(penstock_file_detach(file));
    FINE(penstock_file_detach(NULL));
    FINE(penstock_fs_close(NULL));
    penstock_fs_leave(NULL, NULL);
    FINE(penstock_fs_remove(fs, "/e"));
}

/* What is open when the volume is closed fails, and does not wait. */
static void use_after_close(penstock_fs *fs)
{
    static char memory[100];
    penstock_file *file;
    penstock_subfile *open;
    penstock_request *request;
    uint64_t moved;
    int has_ended = 0;
    FINE(penstock_fs_create(fs, "/c", 2, 2, -1, 0644));
    FINE(penstock_file_attach(fs, "/c", "r+", 0, &file));
    FINE(penstock_subfile_open(file, NULL, 0, 0, 0, NULL, &open));
    FINE(penstock_subfile_write(open, "kept", 4, NULL));
    FINE(penstock_subfile_begin_read_at(open, 0, memory, 4, &request));
    FINE(penstock_fs_close(fs));
    FAILS(PENSTOCK_ERR_SCHEMA, "closed", penstock_subfile_read(open, memory, 4, &moved));
    FAILS(PENSTOCK_ERR_SCHEMA, "closed", penstock_subfile_sync(open));
    FAILS(PENSTOCK_ERR_SCHEMA, "closed", penstock_file_checkpoint(file));
    FAILS(PENSTOCK_ERR_SCHEMA, "closed",
          penstock_file_write_all(file, NULL, 0, 0, 0, memory, 4, &moved));
    FINE(penstock_request_test(request, &has_ended));
    CHECK(has_ended == 1);
    FAILS(PENSTOCK_ERR_SCHEMA, "closed", penstock_request_wait(request, &moved));
    penstock_subfile_free(open);
    FAILS(PENSTOCK_ERR_SCHEMA, "closed", penstock_file_detach(file));
}

/* --- volumes --------------------------------------------------------------------------------- */

static penstock_fs *make(const char *path, uint64_t servers)
{
    penstock_volume_options options = PENSTOCK_VOLUME_OPTIONS_INIT;
    penstock_fs *fs;
    options.servers = servers;
    options.block_bytes = 4096;
    FINE(penstock_volume_create(path, &options));
    FINE(penstock_fs_open(NULL, path, NULL, &fs));
    CHECK(penstock_fs_servers(fs) == (int64_t)servers && penstock_fs_block_bytes(fs) == 4096);
    CHECK(penstock_fs_rank(fs) == 0 && penstock_fs_clients(fs) == 1);
    return fs;
}

static void volumes(const char *directory)
{
    penstock_fs *fs;
    const char *path = join_path(directory, "plain");
    FINE(penstock_volume_create(path, NULL));
    FAILS(PENSTOCK_ERR_EXISTS, "", penstock_volume_create(path, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, "NULL", penstock_volume_create(NULL, NULL));
    FAILS(PENSTOCK_ERR_SCHEMA, "NULL", penstock_fs_open(NULL, NULL, NULL, &fs));
    FAILS(PENSTOCK_ERR_SCHEMA, "NULL", penstock_fs_open(NULL, path, NULL, NULL));
    FAILS(PENSTOCK_ERR_MISSING, "", penstock_fs_open(NULL, join_path(directory, "no"), NULL, &fs));
    FINE(penstock_fs_open(NULL, path, NULL, &fs));
    CHECK(penstock_fs_servers(fs) == 1 && penstock_fs_block_bytes(fs) == 65536);
    FAILS(PENSTOCK_ERR_BUSY, "", penstock_fs_open(NULL, path, NULL, &fs));
    FINE(penstock_fs_close(fs));

    penstock_fs_options options = PENSTOCK_FS_OPTIONS_INIT;
    options.servers = 2;
    FAILS(PENSTOCK_ERR_SCHEMA, "2", penstock_fs_open(NULL, path, &options, &fs));
    options.servers = 1;
    options.cache_bytes = 1 << 20;
    FINE(penstock_fs_open(NULL, path, &options, &fs));
    penstock_fs_leave(fs, "the test wants it");
    options.dedicated = PENSTOCK_AUTO;
    FAILS(PENSTOCK_ERR_SCHEMA, "dedicated", penstock_fs_open(NULL, path, &options, &fs));
    options = (penstock_fs_options){0};
    FAILS(PENSTOCK_ERR_SCHEMA, "PENSTOCK_FS_OPTIONS_INIT",
          penstock_fs_open(NULL, path, &options, &fs));
    FAILS(PENSTOCK_ERR_SCHEMA, "", penstock_fs_open(NULL, "penstock://:x:", NULL, &fs));

    /* Disks of their own, and a capacity. */
    penstock_volume_options made = PENSTOCK_VOLUME_OPTIONS_INIT;
    char first[4200], second[4200], volume[4200], digits[4200];
    snprintf(first, sizeof first, "%s/first-{server}", directory);
    snprintf(second, sizeof second, "%s/second-{server}", directory);
    snprintf(volume, sizeof volume, "%s/volume-{server}", directory);
    const char *disks[] = {first, second};
    for (int server = 0; server < 2; server++)
        for (int disk = 0; disk < 2; disk++) {
            snprintf(digits, sizeof digits, "mkdir '%s/%s-%d'", directory,
                     disk ? "second" : "first", server);
            CHECK(system(digits) == 0);
        }
    made.servers = 2;
    made.capacity = 1 << 20;
    made.block_bytes = 4096;
    made.disk_count = 2;
    FAILS(PENSTOCK_ERR_SCHEMA, "NULL", penstock_volume_create(volume, &made));
    made.disks = disks;
    FINE(penstock_volume_create(volume, &made));
    FINE(penstock_fs_open(NULL, volume, NULL, &fs));
    penstock_usage usage;
    FINE(penstock_fs_usage(fs, -1, &usage));
    CHECK(usage.bytes > 0 && usage.bytes <= 2 << 20);
    FINE(penstock_fs_close(fs));
    made.size = 8;
    FAILS(PENSTOCK_ERR_SCHEMA, "PENSTOCK_VOLUME_OPTIONS_INIT", penstock_volume_create(volume, &made));
}

static void all_checks(penstock_fs *fs, const char *directory)
{
    names(fs);
    status(fs);
    for (int number = 0; number < 60; number++) any_program(fs, number);
    pointers(fs);
    requests(fs);
    hints(fs);
    threads(fs);
    transfers(fs, directory);
    errors(fs);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    if (strstr(argv[1], "://")) {
        penstock_fs *fs;
        FINE(penstock_fs_open(NULL, argv[1], NULL, &fs));
        all_checks(fs, argv[2]);
        FINE(penstock_fs_close(fs));
        printf("all right\n");
        return 0;
    }
    volumes(argv[2]);
    uint64_t servers[] = {1, 3, 7};
    for (int n = 0; n < 3; n++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", n);
        penstock_fs *fs = make(join_path(argv[2], name), servers[n]);
        all_checks(fs, argv[2]);
        space(fs);
        use_after_close(fs);
    }
    printf("all right\n");
    return 0;
}
