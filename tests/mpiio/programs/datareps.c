/* Data representations of a program's own: the bytes of each value are stored from the last one to
 * the first, and a zero byte before each. */
#include "tests.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 3000, WIDTH = 1 + sizeof(int) };

static int reads, writes, extents;
static int state;

static int file_extent(MPI_Datatype type, MPI_Aint *extent, void *extra) {
    int size;
    MPI_Type_size(type, &size);
    *extent = 1 + size;
    *(int *)extra += 1;
    extents++;
    return MPI_SUCCESS;
}

static void store(unsigned char *file, const unsigned char *memory) {
    file[0] = 0;
    for (size_t i = 0; i < sizeof(int); i++) file[1 + i] = memory[sizeof(int) - 1 - i];
}

static void load(unsigned char *memory, const unsigned char *file) {
    for (size_t i = 0; i < sizeof(int); i++) memory[i] = file[sizeof(int) - i];
}

/* Values from `position` on of the user's buffer, `count` of them, are in the file's buffer. */
static int read_values(void *memory, MPI_Datatype type, MPI_Count count, void *file,
                       MPI_Offset position, void *extra) {
    (void)extra;
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    for (MPI_Count i = 0; i < count; i++)
        load((unsigned char *)memory + (position + i) * extent, (unsigned char *)file + i * WIDTH);
    reads++;
    return MPI_SUCCESS;
}

static int write_values(void *memory, MPI_Datatype type, MPI_Count count, void *file,
                        MPI_Offset position, void *extra) {
    (void)extra;
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    for (MPI_Count i = 0; i < count; i++)
        store((unsigned char *)file + i * WIDTH, (unsigned char *)memory + (position + i) * extent);
    writes++;
    return MPI_SUCCESS;
}

static int read_few(void *memory, MPI_Datatype type, int count, void *file, MPI_Offset position,
                    void *extra) {
    return read_values(memory, type, count, file, position, extra);
}

static int write_few(void *memory, MPI_Datatype type, int count, void *file, MPI_Offset position,
                     void *extra) {
    return write_values(memory, type, count, file, position, extra);
}

static int fail_to_write(void *memory, MPI_Datatype type, int count, void *file,
                         MPI_Offset position, void *extra) {
    (void)memory, (void)type, (void)count, (void)file, (void)position, (void)extra;
    return MPI_ERR_CONVERSION;
}

/* The bytes of the file are those of rank 0's values, then of rank 1's, and so on. */
static void check_bytes(const char *function, MPI_File file) {
    unsigned char *bytes = malloc(COUNT * WIDTH), expected[WIDTH];
    OK(MPI_File_set_view, (file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at_all, (file, (MPI_Offset)rank * COUNT * WIDTH, bytes, COUNT * WIDTH,
                              MPI_BYTE, MPI_STATUS_IGNORE));
    bool is_right = true;
    for (int i = 0; i < COUNT; i++) {
        int value = rank * COUNT + i;
        store(expected, (unsigned char *)&value);
        is_right = is_right && memcmp(expected, bytes + i * WIDTH, WIDTH) == 0;
    }
    check(function, "the bytes of the file", is_right, "bytes", __FILE__, __LINE__);
    free(bytes);
}

static void test_round_trip(const char *function, const char *datarep) {
    MPI_File file = open_new(datarep, MPI_MODE_RDWR);
    MPI_Aint extent = -1;
    MPI_Status status;
    MPI_Datatype every_second;
    int *values = malloc(COUNT * sizeof *values), count = -1;
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, datarep, MPI_INFO_NULL));
    OK(MPI_File_get_type_extent, (file, MPI_INT, &extent));
    check(function, "the extent in the file", extent == WIDTH, "extent", __FILE__, __LINE__);
    fill(values, COUNT, rank * COUNT);
    reads = writes = 0;
    OK(MPI_File_write_at_all, (file, (MPI_Offset)rank * COUNT, values, COUNT, MPI_INT, &status));
    MPI_Get_count(&status, MPI_INT, &count);
    check(function, "the count of a write", count == COUNT, "count", __FILE__, __LINE__);
    check(function, "the conversion when writing", writes > 0, "writes", __FILE__, __LINE__);
    OK(MPI_File_sync, (file));
    memset(values, -1, COUNT * sizeof *values);
    OK(MPI_File_read_at_all, (file, (MPI_Offset)rank * COUNT, values, COUNT, MPI_INT, &status));
    check(function, "the values come back", are_from(values, COUNT, rank * COUNT), "values",
          __FILE__, __LINE__);
    check(function, "the conversion when reading", reads > 0, "reads", __FILE__, __LINE__);
    memset(values, -1, COUNT * sizeof *values);
    OK(MPI_File_seek, (file, (MPI_Offset)rank * COUNT + 7, MPI_SEEK_SET));
    OK(MPI_File_read, (file, values, 5, MPI_INT, &status));
    check(function, "values from somewhere", are_from(values, 5, rank * COUNT + 7), "values",
          __FILE__, __LINE__);
    /* Memory with gaps is converted value by value. */
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every_second);
    MPI_Type_commit(&every_second);
    memset(values, -1, COUNT * sizeof *values);
    OK(MPI_File_read_at, (file, (MPI_Offset)rank * COUNT, values, 9, every_second, &status));
    bool is_right = true;
    for (int i = 0; i < 18; i++)
        is_right = is_right && values[i] == (i % 2 ? -1 : rank * COUNT + i / 2);
    check(function, "memory with gaps", is_right, "values", __FILE__, __LINE__);
    MPI_Type_free(&every_second);
    check_bytes(function, file);
    free(values);
    OK(MPI_File_close, (&file));
}

/* Null functions stand for conversions that are not needed. */
static void test_null_functions(void) {
    MPI_File file;
    int values[4], back[4];
    int code = CALL(MPI_Register_datarep, ("as-it-is", MPI_CONVERSION_FN_NULL,
                                           MPI_CONVERSION_FN_NULL, file_extent, &state));
    if (code != MPI_SUCCESS) return;
    file = open_new("as-it-is", MPI_MODE_RDWR);
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "as-it-is", MPI_INFO_NULL));
    fill(values, 4, 4 * rank);
    OK(MPI_File_write_at_all, (file, 4 * rank, values, 4, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all, (file, 4 * rank, back, 4, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_Register_datarep, "without conversions", are_from(back, 4, 4 * rank));
    OK(MPI_File_close, (&file));
}

/* The error of a conversion is the error of the call. */
static void test_failure(void) {
    MPI_File file = open_new("fails", MPI_MODE_RDWR);
    int value = 0;
    OK(MPI_Register_datarep, ("fails", read_few, fail_to_write, file_extent, &state));
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "fails", MPI_INFO_NULL));
    FAILS("a conversion that fails", MPI_ERR_CONVERSION, MPI_File_write,
          (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    FAILS("a conversion that fails", MPI_ERR_CONVERSION, MPI_File_write_at_all,
          (file, rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close, (&file));
}

static bool is_supported(const char *function, int code, const char *datarep) {
    if (!is_penstock() && code != MPI_SUCCESS) {
        skip(function, "this MPI registers no data representations");
        return false;
    }
    check(function, "must succeed", code == MPI_SUCCESS, "code", __FILE__, __LINE__);
    if (code != MPI_SUCCESS) return false;
    MPI_File file = open_new("probe", MPI_MODE_RDWR);
    code = CALL(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, datarep, MPI_INFO_NULL));
    OK(MPI_File_close, (&file));
    if (!is_penstock() && code != MPI_SUCCESS) {
        skip(function, "this MPI registers data representations, but refuses to use them");
        return false;
    }
    check(function, "a view of it", code == MPI_SUCCESS, "code", __FILE__, __LINE__);
    return code == MPI_SUCCESS;
}

void test_datareps(void) {
    /* Errors that belong to no file are those of MPI_COMM_SELF; before MPI 4, of MPI_COMM_WORLD. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = CALL(MPI_Register_datarep, ("reversed", read_few, write_few, file_extent, &state));
    if (is_supported("MPI_Register_datarep", code, "reversed")) {
        FAILS("a name in use", MPI_ERR_DUP_DATAREP, MPI_Register_datarep,
              ("reversed", read_few, write_few, file_extent, &state));
        FAILS("a name in use", MPI_ERR_DUP_DATAREP, MPI_Register_datarep,
              ("external32", read_few, write_few, file_extent, &state));
        test_round_trip("MPI_Register_datarep", "reversed");
        CHECK(MPI_Register_datarep, "the extent function, and its state",
              extents > 0 && state == extents);
        test_null_functions();
        test_failure();
    }
#if HAVE_LARGE_COUNTS
    code = CALL(MPI_Register_datarep_c, ("reversed-c", read_values, write_values, file_extent,
                                         &state));
    if (is_supported("MPI_Register_datarep_c", code, "reversed-c"))
        test_round_trip("MPI_Register_datarep_c", "reversed-c");
#endif
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}
