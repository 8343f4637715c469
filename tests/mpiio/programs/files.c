/* Files as such: how they are opened and closed, their modes, sizes, groups, hints, atomicity. */
#include "tests.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_there(const char *name) { return access(path_of(name), F_OK) == 0; }

static long long size_on_disk(const char *name) {
    struct stat found;
    return stat(path_of(name), &found) ? -1 : (long long)found.st_size;
}

static void test_open_and_close(void) {
    static const int modes[] = {
        MPI_MODE_RDWR | MPI_MODE_CREATE,
        MPI_MODE_RDWR,
        MPI_MODE_RDONLY,
        MPI_MODE_WRONLY,
        MPI_MODE_RDWR | MPI_MODE_UNIQUE_OPEN,
        MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL,
        MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_APPEND,
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        MPI_File file = MPI_FILE_NULL;
        int mode = -1;
        OK(MPI_File_open, (MPI_COMM_WORLD, path_of("modes"), modes[i], MPI_INFO_NULL, &file));
        OK(MPI_File_get_amode, (file, &mode));
        CHECK(MPI_File_get_amode, "the mode of the open", mode == modes[i]);
        OK(MPI_File_close, (&file));
        CHECK(MPI_File_close, "the handle is gone", file == MPI_FILE_NULL);
        CHECK(MPI_File_open, "the file is made", is_there("modes"));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) OK(MPI_File_delete, (path_of("modes"), MPI_INFO_NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_delete, "the file is gone", !is_there("modes"));
}

/* Each rank opens a file of its own, and some ranks one together. */
static void test_groups(void) {
    char name[32];
    MPI_File own, half, all;
    MPI_Comm part;
    MPI_Group group, expected;
    int result, size;
    snprintf(name, sizeof name, "own-%d", rank);
    OK(MPI_File_open, (MPI_COMM_SELF, path_of(name), MPI_MODE_RDWR | MPI_MODE_CREATE,
                       MPI_INFO_NULL, &own));
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, ranks - rank, &part);
    snprintf(name, sizeof name, "half-%d", rank % 2);
    OK(MPI_File_open, (part, path_of(name), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                       &half));
    all = open_new("all", MPI_MODE_RDWR);
    OK(MPI_File_get_group, (own, &group));
    MPI_Group_size(group, &size);
    CHECK(MPI_File_get_group, "of one rank", size == 1);
    MPI_Group_free(&group);
    OK(MPI_File_get_group, (half, &group));
    MPI_Comm_group(part, &expected);
    MPI_Group_compare(group, expected, &result);
    CHECK(MPI_File_get_group, "of half the ranks", result == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&expected);
    OK(MPI_File_get_group, (all, &group));
    MPI_Group_size(group, &size);
    CHECK(MPI_File_get_group, "of all ranks", size == ranks);
    MPI_Group_free(&group);
    /* The communicator may go while the file is open. */
    MPI_Comm_free(&part);
    OK(MPI_File_write_all, (half, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_write, (own, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close, (&all));
    OK(MPI_File_close, (&half));
    OK(MPI_File_close, (&own));
    snprintf(name, sizeof name, "own-%d", rank);
    CHECK(MPI_File_open, "one file for each rank", size_on_disk(name) == sizeof(int));
    OK(MPI_File_delete, (path_of(name), MPI_INFO_NULL));
    CHECK(MPI_File_delete, "a file of this rank", !is_there(name));
}

static void test_sizes(void) {
    MPI_File file = open_new("sizes", MPI_MODE_RDWR);
    MPI_Offset size = -1;
    OK(MPI_File_get_size, (file, &size));
    CHECK(MPI_File_get_size, "of a new file", size == 0);
    static const struct {
        int is_preallocation;
        MPI_Offset bytes, expected;
    } steps[] = {{0, 1000, 1000}, {0, 10, 10},   {1, 5, 10}, {1, 5000, 5000},
                 {1, 4000, 5000}, {0, 0, 0},     {1, 0, 0},  {0, 77, 77}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (steps[i].is_preallocation)
            OK(MPI_File_preallocate, (file, steps[i].bytes));
        else
            OK(MPI_File_set_size, (file, steps[i].bytes));
        OK(MPI_File_sync, (file));
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_File_get_size, (file, &size));
        if (steps[i].is_preallocation)
            CHECK(MPI_File_preallocate, "the size after it", size == steps[i].expected);
        else
            CHECK(MPI_File_set_size, "the size after it", size == steps[i].expected);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* Neither changes what was there before, nor where the pointers are. */
    int value = rank, back = -1;
    MPI_Offset start = rank * (MPI_Offset)sizeof value, position = -1;
    OK(MPI_File_write_at_all, (file, start, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_seek, (file, 3, MPI_SEEK_SET));
    OK(MPI_File_sync, (file));
    OK(MPI_File_preallocate, (file, 100000));
    OK(MPI_File_set_size, (file, ranks * (MPI_Offset)sizeof value));
    OK(MPI_File_sync, (file));
    OK(MPI_File_read_at_all, (file, start, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_set_size, "what was there before", back == value);
    OK(MPI_File_get_position, (file, &position));
    CHECK(MPI_File_set_size, "the pointer stays", position == 3);
    OK(MPI_File_close, (&file));
    CHECK(MPI_File_set_size, "the size on disk",
          size_on_disk("sizes") == ranks * (long long)sizeof value);
}

/* What is cut off and comes back is zero: files of POSIX file systems have no other holes. */
static void test_holes(void) {
    MPI_File file = open_new("holes", MPI_MODE_RDWR);
    unsigned char bytes[64];
    memset(bytes, 0xff, sizeof bytes);
    if (rank == 0)
        OK(MPI_File_write_at, (file, 0, bytes, sizeof bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_File_sync, (file));
    OK(MPI_File_set_size, (file, 10));
    OK(MPI_File_set_size, (file, sizeof bytes));
    OK(MPI_File_sync, (file));
    OK(MPI_File_read_at_all, (file, 0, bytes, sizeof bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    bool is_right = true;
    for (size_t i = 0; i < sizeof bytes; i++) is_right = is_right && bytes[i] == (i < 10 ? 255 : 0);
    CHECK(MPI_File_set_size, "a hole is zero", is_right);
    MPI_Barrier(MPI_COMM_WORLD);
    /* A view with gaps, behind the end: what stands in the gaps is nobody's memory. */
    MPI_Datatype gaps;
    MPI_Type_vector(8, 1, 2, MPI_BYTE, &gaps);
    MPI_Type_commit(&gaps);
    OK(MPI_File_set_view, (file, 100, MPI_BYTE, gaps, "native", MPI_INFO_NULL));
    memset(bytes, 0xee, sizeof bytes);
    if (rank == 0) OK(MPI_File_write, (file, bytes, 8, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_File_sync, (file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_set_view, (file, 100, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at_all, (file, 0, bytes, 15, MPI_BYTE, MPI_STATUS_IGNORE));
    is_right = true;
    for (size_t i = 0; i < 15; i++) is_right = is_right && bytes[i] == (i % 2 ? 0 : 0xee);
    CHECK(MPI_File_write, "holes are not written", is_right);
    MPI_Type_free(&gaps);
    OK(MPI_File_close, (&file));
}

static void test_modes(void) {
    MPI_File file;
    MPI_Offset position = -1;
    int values[2] = {0, 0}, mode = MPI_MODE_RDWR | MPI_MODE_APPEND;
    const char *path = file_of_integers("append", 5);
    OK(MPI_File_open, (MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file));
    OK(MPI_File_get_position, (file, &position));
    CHECK(MPI_File_open, "MPI_MODE_APPEND sets the pointer", position == 5 * (int)sizeof(int));
    OK(MPI_File_get_position_shared, (file, &position));
    CHECK(MPI_File_open, "MPI_MODE_APPEND sets the shared pointer",
          position == 5 * (int)sizeof(int));
    MPI_Barrier(MPI_COMM_WORLD);
    values[0] = 5 + rank;
    OK(MPI_File_write_ordered, (file, values, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close, (&file));
    OK(MPI_File_open, (MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    OK(MPI_File_read_at, (file, (4 + rank) * (MPI_Offset)sizeof(int), values, 2, MPI_INT,
                          MPI_STATUS_IGNORE));
    CHECK(MPI_File_write_ordered, "behind what was there", are_from(values, 2, 4 + rank));
    OK(MPI_File_close, (&file));
    file = open_new("short-lived", MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    OK(MPI_File_write_all, (file, values, 2, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_open, "MPI_MODE_DELETE_ON_CLOSE keeps it open", is_there("short-lived"));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_close, (&file));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_close, "MPI_MODE_DELETE_ON_CLOSE", !is_there("short-lived"));
}

/* A sequential file: the shared pointer, and views that begin where it is. */
static void test_sequential(void) {
    MPI_File file = open_new("sequence", MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
    MPI_Offset displacement = -1;
    MPI_Datatype etype, filetype;
    char datarep[MPI_MAX_DATAREP_STRING];
    int value = rank, back = -1;
    OK(MPI_File_write_ordered, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_set_view, (file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native",
                           MPI_INFO_NULL));
    OK(MPI_File_get_view, (file, &displacement, &etype, &filetype, datarep));
    CHECK(MPI_File_set_view, "MPI_DISPLACEMENT_CURRENT",
          displacement == ranks * (MPI_Offset)sizeof(int));
    value = 100 + rank;
    OK(MPI_File_write_ordered, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close, (&file));
    int mode = MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL;
    OK(MPI_File_open, (MPI_COMM_WORLD, path_of("sequence"), mode, MPI_INFO_NULL, &file));
    OK(MPI_File_read_ordered, (file, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_ordered, "of a sequential file", back == rank);
    OK(MPI_File_read_ordered, (file, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_ordered, "of a sequential file, again", back == 100 + rank);
    OK(MPI_File_close, (&file));
}

/* Whether an info has a key; its value too. */
static bool has(MPI_Info info, const char *key, char value[MPI_MAX_INFO_VAL]) {
    int found = 0, bytes = MPI_MAX_INFO_VAL;
    MPI_Info_get_string(info, key, &bytes, value, &found);
    return found;
}

static void test_hints(void) {
    MPI_Info given, used;
    MPI_File file;
    char value[MPI_MAX_INFO_VAL];
    int keys = -1;
    MPI_Info_create(&given);
    MPI_Info_set(given, "no_such_hint", "of this value");
    MPI_Info_set(given, "cb_nodes", "1");
    MPI_Info_set(given, "cb_buffer_size", "65536");
    if (rank == 0) unlink(path_of("hints"));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_open, (MPI_COMM_WORLD, path_of("hints"), MPI_MODE_RDWR | MPI_MODE_CREATE, given,
                       &file));
    OK(MPI_File_get_info, (file, &used));
    MPI_Info_get_nkeys(used, &keys);
    CHECK(MPI_File_get_info, "a new info", keys >= 0 && used != given);
    CHECK(MPI_File_get_info, "unknown hints are ignored", !has(used, "no_such_hint", value));
    CHECK(MPI_File_get_info, "a hint in use",
          has(used, "cb_buffer_size", value) && strcmp(value, "65536") == 0);
    CHECK(MPI_File_get_info, "another one",
          has(used, "cb_nodes", value) && strcmp(value, "1") == 0);
    MPI_Info_free(&used);
    /* A value that makes no sense is ignored, too. */
    MPI_Info_set(given, "cb_nodes", "some");
    MPI_Info_set(given, "cb_buffer_size", "-3");
    OK(MPI_File_set_info, (file, given));
    SUCCEEDS("MPI_INFO_NULL", MPI_File_set_info, (file, MPI_INFO_NULL));
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "native", given));
    int mine = rank, back = -1;
    OK(MPI_File_write_at_all, (file, rank, &mine, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at, (file, rank, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_set_info, "the file is as before", back == rank);
    OK(MPI_File_get_info, (file, &used));
    CHECK(MPI_File_set_info, "nonsense is not in use",
          !has(used, "cb_buffer_size", value) || strcmp(value, "-3") != 0);
    MPI_Info_free(&used);
    OK(MPI_File_close, (&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) OK(MPI_File_delete, (path_of("hints"), given));
    MPI_Info_free(&given);
}

static void test_atomicity(void) {
    MPI_File file = open_new("atomic", MPI_MODE_RDWR);
    int flag = -1;
    OK(MPI_File_get_atomicity, (file, &flag));
    CHECK(MPI_File_get_atomicity, "of a new file", flag == 0);
    OK(MPI_File_set_atomicity, (file, 1));
    OK(MPI_File_get_atomicity, (file, &flag));
    CHECK(MPI_File_set_atomicity, "true", flag == 1);
    /* What one rank writes, another reads after a barrier. */
    int value = rank, back = -1, next = (rank + 1) % ranks;
    MPI_Offset bytes = sizeof value;
    OK(MPI_File_write_at, (file, rank * bytes, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_read_at, (file, next * bytes, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_at, "of an atomic file, after a barrier", back == next);
    OK(MPI_File_set_atomicity, (file, 0));
    OK(MPI_File_get_atomicity, (file, &flag));
    CHECK(MPI_File_set_atomicity, "false", flag == 0);
    OK(MPI_File_close, (&file));
}

void test_files(void) {
    test_open_and_close();
    test_groups();
    test_sizes();
    test_holes();
    test_modes();
    test_sequential();
    test_hints();
    test_atomicity();
}
