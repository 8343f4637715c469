/* What a program does wrong: the class of each error, and that the file goes on as before. */
#include "tests.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where the standard names no class, or two of them fit. */
static const int no_access[] = {MPI_ERR_ACCESS, MPI_ERR_READ_ONLY, MPI_ERR_AMODE, -1};
static const int read_only[] = {MPI_ERR_READ_ONLY, MPI_ERR_ACCESS, MPI_ERR_AMODE, -1};
static const int not_allowed[] = {MPI_ERR_UNSUPPORTED_OPERATION, MPI_ERR_AMODE, MPI_ERR_ACCESS, -1};
static const int wrong_argument[] = {MPI_ERR_ARG, MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_BUFFER, -1};
static const int not_same[] = {MPI_ERR_NOT_SAME, MPI_ERR_AMODE, MPI_ERR_ARG, -1};
static const int wrong_file[] = {MPI_ERR_FILE, MPI_ERR_ARG, -1};
static const int bad_name[] = {MPI_ERR_NO_SUCH_FILE, MPI_ERR_BAD_FILE, MPI_ERR_IO, MPI_ERR_ACCESS,
                               -1};
static const int order[] = {MPI_ERR_IO, MPI_ERR_OTHER, MPI_ERR_ARG, MPI_ERR_REQUEST,
                            MPI_ERR_UNSUPPORTED_OPERATION, -1};

static void test_open(void) {
    static const struct {
        const char *words;
        int mode;
    } wrong[] = {
        {"no mode", 0},
        {"create alone", MPI_MODE_CREATE},
        {"read-only and write-only", MPI_MODE_RDONLY | MPI_MODE_WRONLY},
        {"read-write and read-only", MPI_MODE_RDWR | MPI_MODE_RDONLY},
        {"read-write and write-only", MPI_MODE_RDWR | MPI_MODE_WRONLY},
        {"create read-only", MPI_MODE_RDONLY | MPI_MODE_CREATE},
        {"exclusive read-only", MPI_MODE_RDONLY | MPI_MODE_EXCL},
        {"sequential read-write", MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL},
    };
    MPI_File file = MPI_FILE_NULL;
    const char *path = file_of_integers("there", 3), *missing = path_of("missing");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FAILS(wrong[i].words, MPI_ERR_AMODE, MPI_File_open,
              (MPI_COMM_WORLD, path, wrong[i].mode, MPI_INFO_NULL, &file));
    FAILS("no such file", MPI_ERR_NO_SUCH_FILE, MPI_File_open,
          (MPI_COMM_WORLD, missing, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    FAILS("no such file, read-only", MPI_ERR_NO_SUCH_FILE, MPI_File_open,
          (MPI_COMM_WORLD, missing, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    FAILS("the file exists", MPI_ERR_FILE_EXISTS, MPI_File_open,
          (MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL,
           &file));
    FAILS_BY("no such directory", bad_name, MPI_File_open,
             (MPI_COMM_WORLD, path_of("missing/file"), MPI_MODE_RDWR | MPI_MODE_CREATE,
              MPI_INFO_NULL, &file));
    if (ranks > 1 && is_able("MPI_File_open", "modes that differ"))
        FAILS_BY("modes that differ", not_same, MPI_File_open,
                 (MPI_COMM_WORLD, path, rank ? MPI_MODE_RDWR : MPI_MODE_RDONLY, MPI_INFO_NULL,
                  &file));
    CHECK(MPI_File_open, "no file is made", access(missing, F_OK) != 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        FAILS("no such file", MPI_ERR_NO_SUCH_FILE, MPI_File_delete, (missing, MPI_INFO_NULL));
}

static void test_closed(void) {
    MPI_File none = MPI_FILE_NULL;
    MPI_Offset at;
    int value = 0;
    if (!is_able("MPI_File_close", "a closed file")) return;
    FAILS_BY("a closed file", wrong_file, MPI_File_close, (&none));
    FAILS_BY("a closed file", wrong_file, MPI_File_get_size, (none, &at));
    FAILS_BY("a closed file", wrong_file, MPI_File_sync, (none));
    FAILS_BY("a closed file", wrong_file, MPI_File_write, (none, &value, 1, MPI_INT,
                                                           MPI_STATUS_IGNORE));
    FAILS_BY("a closed file", wrong_file, MPI_File_read_all, (none, &value, 1, MPI_INT,
                                                              MPI_STATUS_IGNORE));
    FAILS_BY("a closed file", wrong_file, MPI_File_set_view,
             (none, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    FAILS_BY("a closed file", wrong_file, MPI_File_seek, (none, 0, MPI_SEEK_SET));
}

static void test_read_only(void) {
    MPI_File file;
    int values[2] = {0, 0};
    const char *path = file_of_integers("read-only", 8);
    OK(MPI_File_open, (MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
#define REFUSED(name, arguments) FAILS_BY("a read-only file", read_only, name, arguments)
    REFUSED(MPI_File_write, (file, values, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_write_at, (file, 0, values, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_write_all, (file, values, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_write_at_all, (file, 0, values, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_write_shared, (file, values, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_write_ordered, (file, values, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_set_size, (file, 0));
    REFUSED(MPI_File_preallocate, (file, 1000));
#undef REFUSED
    SUCCEEDS("a read-only file", MPI_File_sync, (file));
    OK(MPI_File_read_at, (file, 4, values, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_at, "after errors", values[0] == 1);
    OK(MPI_File_close, (&file));
}

static void test_write_only(void) {
    MPI_File file = open_new("write-only", MPI_MODE_WRONLY);
    int value = 5;
#define REFUSED(name, arguments) FAILS_BY("a write-only file", no_access, name, arguments)
    REFUSED(MPI_File_read, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_read_at, (file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_read_all, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_read_at_all, (file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_read_shared, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_read_ordered, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
#undef REFUSED
    OK(MPI_File_write, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close, (&file));
}

static void test_sequential(void) {
    MPI_File file = open_new("sequential", MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
    MPI_Offset at;
    int value = 5;
#define REFUSED(name, arguments) FAILS_BY("a sequential file", not_allowed, name, arguments)
    REFUSED(MPI_File_write, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_write_at, (file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_write_at_all, (file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED(MPI_File_seek, (file, 0, MPI_SEEK_SET));
    REFUSED(MPI_File_get_position, (file, &at));
    REFUSED(MPI_File_seek_shared, (file, 0, MPI_SEEK_SET));
    REFUSED(MPI_File_get_position_shared, (file, &at));
#undef REFUSED
    FAILS_BY("a displacement in a sequential file", wrong_argument, MPI_File_set_view,
             (file, 4, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_close, (&file));
    file = open_new("sequential", MPI_MODE_RDWR);
    FAILS_BY("MPI_DISPLACEMENT_CURRENT in another file", wrong_argument, MPI_File_set_view,
             (file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_close, (&file));
}

static void test_arguments(void) {
    MPI_File file;
    MPI_Offset at = 0;
    MPI_Datatype backwards, halves;
    int value = 7;
    const char *path = file_of_integers("arguments", 8);
    OK(MPI_File_open, (MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
#define REFUSED(words, name, arguments) FAILS_BY(words, wrong_argument, name, arguments)
    REFUSED("a negative offset", MPI_File_read_at, (file, -4, &value, 1, MPI_INT,
                                                    MPI_STATUS_IGNORE));
    REFUSED("a negative offset", MPI_File_write_at, (file, -4, &value, 1, MPI_INT,
                                                     MPI_STATUS_IGNORE));
    REFUSED("a negative offset", MPI_File_read_at_all, (file, -4, &value, 1, MPI_INT,
                                                        MPI_STATUS_IGNORE));
    REFUSED("a negative count", MPI_File_read, (file, &value, -1, MPI_INT, MPI_STATUS_IGNORE));
    REFUSED("a negative count", MPI_File_write_at_all, (file, 0, &value, -1, MPI_INT,
                                                        MPI_STATUS_IGNORE));
    REFUSED("no datatype", MPI_File_write, (file, &value, 1, MPI_DATATYPE_NULL,
                                            MPI_STATUS_IGNORE));
    REFUSED("a pointer before the file", MPI_File_seek, (file, -1, MPI_SEEK_SET));
    REFUSED("a pointer before the file", MPI_File_seek, (file, -1000, MPI_SEEK_END));
    REFUSED("no such whence", MPI_File_seek, (file, 0, 12345));
    if (is_able("MPI_File_seek_shared", "a pointer before the file"))
        REFUSED("a pointer before the file", MPI_File_seek_shared, (file, -1, MPI_SEEK_SET));
    if (is_able("MPI_File_seek_shared", "no such whence"))
        REFUSED("no such whence", MPI_File_seek_shared, (file, 0, 12345));
    REFUSED("a negative size", MPI_File_set_size, (file, -1));
    REFUSED("a negative size", MPI_File_preallocate, (file, -1));
    REFUSED("a negative offset", MPI_File_get_byte_offset, (file, -1, &at));
    REFUSED("a negative displacement", MPI_File_set_view,
            (file, -7, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    REFUSED("no etype", MPI_File_set_view,
            (file, 0, MPI_DATATYPE_NULL, MPI_INT, "native", MPI_INFO_NULL));
    REFUSED("no filetype", MPI_File_set_view,
            (file, 0, MPI_INT, MPI_DATATYPE_NULL, "native", MPI_INFO_NULL));
    FAILS("no such data representation", MPI_ERR_UNSUPPORTED_DATAREP, MPI_File_set_view,
          (file, 0, MPI_INT, MPI_INT, "klingon", MPI_INFO_NULL));
    MPI_Type_create_hindexed_block(2, 1, (MPI_Aint[]){8, 0}, MPI_INT, &backwards);
    MPI_Type_commit(&backwards);
    REFUSED("a filetype that goes back", MPI_File_set_view,
            (file, 0, MPI_INT, backwards, "native", MPI_INFO_NULL));
    MPI_Type_contiguous(3, MPI_SHORT, &halves);
    MPI_Type_commit(&halves);
    REFUSED("a filetype of other etypes", MPI_File_set_view,
            (file, 0, MPI_INT, halves, "native", MPI_INFO_NULL));
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    FAILS_BY("half an etype", ((const int[]){MPI_ERR_ARG, MPI_ERR_TYPE, MPI_ERR_IO, MPI_ERR_COUNT,
                                             -1}),
             MPI_File_read_at, (file, 0, &value, 1, MPI_SHORT, MPI_STATUS_IGNORE));
#undef REFUSED
    MPI_Type_free(&backwards);
    MPI_Type_free(&halves);
    OK(MPI_File_read_at_all, (file, 3, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_at_all, "after errors", value == 3);
    OK(MPI_File_get_position, (file, &at));
    CHECK(MPI_File_get_position, "after errors", at == 0);
    OK(MPI_File_close, (&file));
}

/* Split collectives: one at a time, and the end is that of the beginning. */
static void test_split(void) {
    MPI_File file;
    int value = -1, other = -1;
    const char *path = file_of_integers("split", 8);
    OK(MPI_File_open, (MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    if (is_able("MPI_File_read_all_end", "an end without a beginning"))
        FAILS_BY("an end without a beginning", order, MPI_File_read_all_end,
                 (file, &value, MPI_STATUS_IGNORE));
    if (is_able("MPI_File_write_ordered_end", "an end without a beginning"))
        FAILS_BY("an end without a beginning", order, MPI_File_write_ordered_end,
                 (file, &value, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all_begin, (file, 8, &value, 1, MPI_INT));
    FAILS_BY("a second beginning", order, MPI_File_read_at_all_begin,
             (file, 0, &other, 1, MPI_INT));
    if (is_able("MPI_File_write_all_end", "the end of another call"))
        FAILS_BY("the end of another call", order, MPI_File_write_all_end,
                 (file, &value, MPI_STATUS_IGNORE));
    SUCCEEDS("after errors", MPI_File_read_at_all_end, (file, &value, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_at_all_end, "after errors", value == 2 && other == -1);
    OK(MPI_File_close, (&file));
}

void test_errors(void) {
    test_open();
    test_closed();
    test_read_only();
    test_write_only();
    test_sequential();
    test_arguments();
    test_split();
}
