/* Views, pointers, and handles of other languages. */
#include "tests.h"

#include <string.h>

static int combiner_of(MPI_Datatype type) {
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    return combiner;
}

/* The view is the expected one; the types that were told are freed, if they are ours. */
static void check_view(MPI_File file, const char *words, MPI_Offset displacement, int etype_bytes,
                       MPI_Count extent, const char *datarep) {
    MPI_Offset at = -1;
    MPI_Datatype types[2];
    char name[MPI_MAX_DATAREP_STRING] = "";
    OK(MPI_File_get_view, (file, &at, &types[0], &types[1], name));
    int size = -1;
    MPI_Aint lower, found = -1;
    MPI_Type_size(types[0], &size);
    MPI_Type_get_extent(types[1], &lower, &found);
    CHECK(MPI_File_get_view, words, at == displacement && size == etype_bytes && found == extent);
    if (strcmp(datarep, "internal") == 0)
        CHECK(MPI_File_get_view, "internal", strcmp(name, datarep) == 0);
    else
        CHECK(MPI_File_get_view, "the data representation", strcmp(name, datarep) == 0);
    for (int i = 0; i < 2; i++)
        if (combiner_of(types[i]) != MPI_COMBINER_NAMED) MPI_Type_free(&types[i]);
}

static void test_view(void) {
    MPI_File file = open_new("view", MPI_MODE_RDWR);
    MPI_Datatype pairs;
    MPI_Offset at = -1;
    check_view(file, "of a new file", 0, 1, 1, "native");
    MPI_Type_vector(3, 2, 5, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    OK(MPI_File_set_view, (file, 16, MPI_INT, pairs, "native", MPI_INFO_NULL));
    MPI_Type_free(&pairs);
    check_view(file, "after the types are freed", 16, 4, 12 * 4, "native");
    /* Etypes 0 and 1, 5 and 6, 10 and 11, then the same from 12 on. */
    static const int numbers[] = {0, 1, 5, 6, 10, 11, 12, 13, 17};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        OK(MPI_File_get_byte_offset, (file, (MPI_Offset)i, &at));
        CHECK(MPI_File_get_byte_offset, "of an etype", at == 16 + 4 * numbers[i]);
    }
    OK(MPI_File_get_byte_offset, (file, 6000000000, &at));
    CHECK(MPI_File_get_byte_offset, "of a large offset", at == 16 + 48 * (MPI_Offset)1000000000);
    int values[9], back[18];
    fill(values, 9, 10 * rank);
    memset(back, -1, sizeof back);
    OK(MPI_File_set_size, (file, 16 + 18 * sizeof(int)));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) OK(MPI_File_write, (file, values, 9, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync, (file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_set_view, (file, 16, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_all, (file, back, 18, MPI_INT, MPI_STATUS_IGNORE));
    bool is_right = true;
    for (int i = 0; i < 9; i++) is_right = is_right && back[numbers[i]] == i;
    CHECK(MPI_File_set_view, "where the data are", is_right);
    SUCCEEDS("internal", MPI_File_set_view,
             (file, 3, MPI_DOUBLE, MPI_DOUBLE, "internal", MPI_INFO_NULL));
    check_view(file, "internal data", 3, 8, 8, "internal");
    OK(MPI_File_set_view, (file, 0, MPI_SHORT, MPI_SHORT, "external32", MPI_INFO_NULL));
    check_view(file, "external data", 0, 2, 2, "external32");
    OK(MPI_File_close, (&file));
}

static void test_pointers(void) {
    enum { SIZE = 40 };
    const char *path = file_of_integers("pointers", SIZE);
    MPI_File file;
    MPI_Offset at = -1;
    MPI_Datatype every_third;
    OK(MPI_File_open, (MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &every_third);
    MPI_Type_commit(&every_third);
    OK(MPI_File_seek, (file, 17, MPI_SEEK_SET));
    OK(MPI_File_set_view, (file, 0, MPI_INT, every_third, "native", MPI_INFO_NULL));
    MPI_Type_free(&every_third);
    OK(MPI_File_get_position, (file, &at));
    CHECK(MPI_File_set_view, "the pointer goes to the beginning", at == 0);
    static const struct {
        MPI_Offset offset;
        int whence;
        MPI_Offset expected;
    } moves[] = {
        /* Of 40 integers, the view shows 14: numbers 0, 3, up to 39. */
        {5, MPI_SEEK_SET, 5},  {2, MPI_SEEK_CUR, 7},    {-4, MPI_SEEK_CUR, 3},
        {0, MPI_SEEK_END, 14}, {-14, MPI_SEEK_END, 0},  {5000, MPI_SEEK_SET, 5000},
        {1, MPI_SEEK_CUR, 5001},            {0, MPI_SEEK_SET, 0},
    };
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        OK(MPI_File_seek, (file, moves[i].offset, moves[i].whence));
        OK(MPI_File_get_position, (file, &at));
        CHECK(MPI_File_seek, "where the pointer is", at == moves[i].expected);
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_File_seek_shared, (file, moves[i].offset, moves[i].whence));
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_File_get_position_shared, (file, &at));
        CHECK(MPI_File_seek_shared, "where the pointer is", at == moves[i].expected);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* The three kinds of pointers do not know of each other. */
    int value = -1;
    OK(MPI_File_seek, (file, rank, MPI_SEEK_SET));
    OK(MPI_File_read_ordered, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_ordered, "in a view with gaps", value == 3 * rank || rank >= 14);
    OK(MPI_File_read_at, (file, 2, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_get_position, (file, &at));
    CHECK(MPI_File_get_position, "after accesses without it", at == rank);
    OK(MPI_File_read, (file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read, "in a view with gaps", value == 3 * rank || rank >= 14);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_position_shared, (file, &at));
    CHECK(MPI_File_get_position_shared, "after accesses without it", at == ranks);
    OK(MPI_File_close, (&file));
}

static void test_extents(void) {
    MPI_File file = open_new("extents", MPI_MODE_RDWR);
    MPI_Datatype gaps;
    MPI_Aint extent = -1;
    MPI_Type_create_resized(MPI_INT, -4, 12, &gaps);
    MPI_Type_commit(&gaps);
    OK(MPI_File_get_type_extent, (file, gaps, &extent));
    CHECK(MPI_File_get_type_extent, "native", extent == 12);
#if HAVE_LARGE_COUNTS
    MPI_Count large = -1;
    OK(MPI_File_get_type_extent_c, (file, gaps, &large));
    CHECK(MPI_File_get_type_extent_c, "native", large == 12);
#endif
    OK(MPI_File_set_view, (file, 0, MPI_DOUBLE, MPI_DOUBLE, "external32", MPI_INFO_NULL));
    const struct {
        MPI_Datatype type;
        MPI_Aint bytes;
    } types[] = {{MPI_DOUBLE, 8}, {MPI_SHORT, 2}, {MPI_INT, 4}, {MPI_INT64_T, 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        OK(MPI_File_get_type_extent, (file, types[i].type, &extent));
        CHECK(MPI_File_get_type_extent, "external32", extent == types[i].bytes);
    }
    /* A long has four bytes in external32, eight in memory. */
    OK(MPI_File_get_type_extent, (file, MPI_LONG, &extent));
    CHECK(MPI_File_get_type_extent, "a long in external32", extent == 4);
    MPI_Type_free(&gaps);
    OK(MPI_File_close, (&file));
}

/* Numbers in external32: the most significant byte first, and longs of four bytes. */
static void test_external(void) {
    MPI_File file = open_new("external", MPI_MODE_RDWR);
    unsigned char bytes[8] = {0};
    int value = 0x01020304 + rank, back = 0;
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at_all, (file, rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all, (file, rank, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_at_all, "external32 back", back == value);
    OK(MPI_File_set_view, (file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at_all, (file, 4 * rank, bytes, 4, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(MPI_File_write_at_all, "external32 bytes",
          bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 3 && bytes[3] == 4 + rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_able("MPI_File_write_at_all", "longs in external32")) {
        long number = -2 - rank, again = 0;
        OK(MPI_File_set_view, (file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL));
        OK(MPI_File_write_at_all, (file, rank, &number, 1, MPI_LONG, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at_all, (file, rank, &again, 1, MPI_LONG, MPI_STATUS_IGNORE));
        CHECK(MPI_File_write_at_all, "longs in external32", again == number);
        OK(MPI_File_set_view, (file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
        OK(MPI_File_read_at_all, (file, 4 * rank, bytes, 4, MPI_BYTE, MPI_STATUS_IGNORE));
        CHECK(MPI_File_write_at_all, "longs in external32",
              bytes[0] == 255 && bytes[1] == 255 && bytes[2] == 255 && bytes[3] == 254 - rank);
    }
    OK(MPI_File_close, (&file));
}

/* A handle goes to another language and back, and still is the file. */
static void test_handles(void) {
    MPI_File file = open_new("handles", MPI_MODE_RDWR), back;
    int value = rank, found = -1;
    MPI_Offset at = rank * (MPI_Offset)sizeof value;
    OK(MPI_File_write_at, (file, at, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
#if HAVE_FORTRAN_HANDLES
    MPI_Fint fortran = CALL(MPI_File_c2f, (file));
    back = CALL(MPI_File_f2c, (fortran));
    CHECK(MPI_File_f2c, "the same handle", back == file);
    OK(MPI_File_read_at, (back, at, &found, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_f2c, "the same file", found == rank);
    CHECK(MPI_File_c2f, "MPI_FILE_NULL",
          CALL(MPI_File_f2c, (CALL(MPI_File_c2f, (MPI_FILE_NULL)))) == MPI_FILE_NULL);
#endif
#if HAVE_INTEGER_HANDLES
    int number = CALL(MPI_File_toint, (file));
    back = CALL(MPI_File_fromint, (number));
    CHECK(MPI_File_fromint, "the same handle", back == file);
    OK(MPI_File_read_at, (back, at, &found, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_fromint, "the same file", found == rank);
    CHECK(MPI_File_toint, "MPI_FILE_NULL",
          CALL(MPI_File_fromint, (CALL(MPI_File_toint, (MPI_FILE_NULL)))) == MPI_FILE_NULL);
    /* Another file has another number. */
    MPI_File other = open_new("another", MPI_MODE_RDWR);
    CHECK(MPI_File_toint, "numbers of two files", CALL(MPI_File_toint, (other)) != number);
    OK(MPI_File_close, (&other));
#endif
    back = file;
    OK(MPI_File_close, (&back));
    (void)found;
}

void test_views(void) {
    test_view();
    test_pointers();
    test_extents();
    test_external();
    test_handles();
}
