/* More than 2^31 and 2^32 bytes: offsets, views, types and counts. Files are sparse. */
#include "tests.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const MPI_Offset GIB = 1 << 30;

static void test_offsets(void) {
    MPI_File file = open_new("large-offsets", MPI_MODE_RDWR);
    MPI_Offset size = -1, at = 5 * GIB + 4 * rank;
    int value = 1000 + rank, back = -1;
    OK(MPI_File_write_at_all, (file, at, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync, (file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_size, (file, &size));
    CHECK(MPI_File_get_size, "more than 2^32 bytes", size == 5 * GIB + 4 * ranks);
    OK(MPI_File_seek, (file, at, MPI_SEEK_SET));
    OK(MPI_File_read, (file, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read, "behind 2^32 bytes", back == value);
    OK(MPI_File_seek_shared, (file, 5 * GIB, MPI_SEEK_SET));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_read_ordered, (file, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_ordered, "behind 2^32 bytes", back == value);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_set_size, (file, 3 * GIB));
    OK(MPI_File_sync, (file));
    OK(MPI_File_get_size, (file, &size));
    CHECK(MPI_File_set_size, "more than 2^31 bytes", size == 3 * GIB);
    OK(MPI_File_close, (&file));
    delete_of_all("large-offsets");
}

/* A view of which each tile is 3 GiB, and one integer of each rank is in it. */
static void test_view(void) {
    enum { TILES = 3 };
    MPI_File file = open_new("large-view", MPI_MODE_RDWR);
    MPI_Datatype tile;
    MPI_Offset at = -1;
    int values[TILES], back = -1;
    MPI_Type_create_resized(MPI_INT, 0, 3 * GIB, &tile);
    MPI_Type_commit(&tile);
    MPI_Offset start = rank * (MPI_Offset)sizeof(int);
    OK(MPI_File_set_view, (file, start, MPI_INT, tile, "native", MPI_INFO_NULL));
    MPI_Type_free(&tile);
    fill(values, TILES, 10 * rank);
    for (int i = 0; i < TILES; i++)
        OK(MPI_File_write_at_all, (file, i, &values[i], 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_get_byte_offset, (file, 2, &at));
    CHECK(MPI_File_get_byte_offset, "behind 2^32 bytes", at == 6 * GIB + start);
    OK(MPI_File_set_view, (file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    for (int i = 0; i < TILES; i++) {
        OK(MPI_File_read_at_all, (file, i * 3 * GIB + start, &back, 1, MPI_INT,
                                  MPI_STATUS_IGNORE));
        CHECK(MPI_File_set_view, "tiles of more than 2^31 bytes", back == 10 * rank + i);
    }
    OK(MPI_File_close, (&file));
    delete_of_all("large-view");
}

/* Memory of 2^31 bytes and more, of which the parts at both ends are used. */
static void test_memory(void) {
    if (rank) return;
    MPI_File file = MPI_FILE_NULL;
    MPI_Datatype ends;
    size_t bytes = 2 * (size_t)GIB + 4096;
    int back[2] = {-1, -1};
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        skip("MPI_File_write_at", "no address space of 2 GiB");
        return;
    }
    OK(MPI_File_open, (MPI_COMM_SELF, path_of("large-memory"), MPI_MODE_RDWR | MPI_MODE_CREATE,
                       MPI_INFO_NULL, &file));
    MPI_Type_create_hindexed_block(2, 1, (MPI_Aint[]){0, 2 * GIB}, MPI_INT, &ends);
    MPI_Type_commit(&ends);
    memcpy(memory, &(int){17}, sizeof(int));
    memcpy(memory + 2 * GIB, &(int){18}, sizeof(int));
    OK(MPI_File_write_at, (file, 4, memory, 1, ends, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at, (file, 4, back, 2, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_write_at, "memory of more than 2^31 bytes", are_from(back, 2, 17));
    OK(MPI_File_write_at, (file, 4, &(int[]){20, 21}, 2, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at, (file, 4, memory, 1, ends, MPI_STATUS_IGNORE));
    memcpy(&back[0], memory, sizeof(int));
    memcpy(&back[1], memory + 2 * GIB, sizeof(int));
    CHECK(MPI_File_read_at, "memory of more than 2^31 bytes", are_from(back, 2, 20));
    MPI_Type_free(&ends);
    munmap(memory, bytes);
    OK(MPI_File_close, (&file));
    OK(MPI_File_delete, (path_of("large-memory"), MPI_INFO_NULL));
}

#if HAVE_LARGE_COUNTS
/* More than 2^31 values in one read of a file that ends after a few of them. */
static void test_counts(void) {
    if (rank) return;
    MPI_File file = MPI_FILE_NULL;
    MPI_Status status;
    MPI_Count count = -1, asked = 2 * (MPI_Count)GIB + 5;
    char *memory = mmap(NULL, (size_t)asked, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || !is_able("MPI_File_read_at_c", "more than 2^31 values")) return;
    OK(MPI_File_open, (MPI_COMM_SELF, path_of("large-counts"), MPI_MODE_RDWR | MPI_MODE_CREATE,
                       MPI_INFO_NULL, &file));
    OK(MPI_File_write_at_c, (file, 0, "seventeen", 9, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_c, (file, 0, memory, asked, MPI_CHAR, &status));
    MPI_Get_count_c(&status, MPI_CHAR, &count);
    CHECK(MPI_File_read_at_c, "more than 2^31 values",
          count == 9 && memcmp(memory, "seventeen", 10) == 0);
    /* And of types without data, of which any number is nothing. */
    MPI_Datatype nothing;
    MPI_Type_contiguous(0, MPI_INT, &nothing);
    MPI_Type_commit(&nothing);
    OK(MPI_File_write_at_c, (file, 3, memory, asked, nothing, &status));
    MPI_Get_count_c(&status, MPI_BYTE, &count);
    CHECK(MPI_File_write_at_c, "more than 2^31 times nothing", count == 0);
    MPI_Type_free(&nothing);
    munmap(memory, (size_t)asked);
    OK(MPI_File_close, (&file));
    OK(MPI_File_delete, (path_of("large-counts"), MPI_INFO_NULL));
}
#endif

void test_large(void) {
    test_offsets();
    test_view();
    test_memory();
#if HAVE_LARGE_COUNTS
    test_counts();
#endif
    MPI_Barrier(MPI_COMM_WORLD);
}
