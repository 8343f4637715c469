/* Every form of a data access, with counts of both kinds: each rank writes a part of its own, and
 * reads what the next one has written. Statuses, memory, pointers and the file are looked at. */
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100, ROUNDS = 2 };

typedef enum { AT, OWN, SHARED, ORDERED } Place;

typedef struct {
    MPI_File file;
    bool is_write;
    MPI_Offset offset;
    int *values;
    int count;
    MPI_Datatype type;
    MPI_Status *status;
} Call;

typedef struct {
    const char *name;
    Place place;
    void (*call)(const Call *call);
} Form;

#define SUFFIX
#include "forms.h"
#undef SUFFIX
#if HAVE_LARGE_COUNTS
#define SUFFIX _c
#include "forms.h"
#undef SUFFIX
#endif

/* The function that a check about a form is charged to. */
static const char *charged(const Form *form, bool is_write) {
    static const char *const names[2][4] = {
        {"MPI_File_read_at", "MPI_File_read", "MPI_File_read_shared", "MPI_File_read_ordered"},
        {"MPI_File_write_at", "MPI_File_write", "MPI_File_write_shared", "MPI_File_write_ordered"},
    };
    return names[is_write][form->place];
}

#define REQUIRE(form, is_write, words, condition) \
    check(charged(form, is_write), words, (condition), (form)->name, __FILE__, __LINE__)

static void settle(MPI_File file) {
    OK(MPI_File_sync, (file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_sync, (file));
}

/* One call of a form for the part of rank `whose`, which is its block of each round. */
static void do_part(const Form *form, MPI_File file, bool is_write, int *values, int whose,
                    int round) {
    MPI_Status status;
    MPI_Offset offset = (MPI_Offset)(round * ranks + whose) * COUNT;
    memset(&status, 0x5a, sizeof status);
    Call call = {file, is_write, offset, values, COUNT, MPI_INT, &status};
    if (form->place == OWN) OK(MPI_File_seek, (file, offset, MPI_SEEK_SET));
    form->call(&call);
    int count, elements;
    MPI_Get_count(&status, MPI_INT, &count);
    MPI_Get_elements(&status, MPI_INT, &elements);
    REQUIRE(form, is_write, "count in the status", count == COUNT && elements == COUNT);
    if (form->place == OWN) {
        MPI_Offset position = -1;
        OK(MPI_File_get_position, (file, &position));
        CHECK(MPI_File_get_position, "after an access", position == offset + COUNT);
    }
}

/* Ranks use the shared pointer one after the other. */
static void in_turn(const Form *form, MPI_File file, bool is_write, int *values, int round,
                    int shift) {
    for (int turn = 0; turn < ranks; turn++) {
        if ((rank + shift) % ranks == turn) do_part(form, file, is_write, values, turn, round);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void move_all(const Form *form, MPI_File file, bool is_write, int *values, int round,
                     int shift) {
    int whose = (rank + shift) % ranks;
    if (form->place == SHARED)
        in_turn(form, file, is_write, values, round, shift);
    else
        do_part(form, file, is_write, values, form->place == ORDERED ? rank : whose, round);
}

static void test_form(const Form *form, const char *suffix) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", form->name, suffix);
    MPI_File file = open_new(name, MPI_MODE_RDWR);
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    int *values = malloc((COUNT + 2) * sizeof *values);
    for (int round = 0; round < ROUNDS; round++) {
        fill(values, COUNT + 2, (round * ranks + rank) * COUNT - 1);
        move_all(form, file, true, values + 1, round, 0);
        REQUIRE(form, true, "memory is not changed",
                are_from(values, COUNT + 2, (round * ranks + rank) * COUNT - 1));
    }
    settle(file);
    bool has_shared = form->place == SHARED || form->place == ORDERED;
    MPI_Offset position = -1, size = -1, end = (MPI_Offset)ROUNDS * ranks * COUNT;
    if (has_shared) {
        OK(MPI_File_get_position_shared, (file, &position));
        CHECK(MPI_File_get_position_shared, "after an access", position == end);
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_File_seek_shared, (file, 0, MPI_SEEK_SET));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    OK(MPI_File_get_size, (file, &size));
    CHECK(MPI_File_get_size, "after writes", size == end * (MPI_Offset)sizeof(int));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < ROUNDS; round++) {
        int whose = form->place == ORDERED ? rank : (rank + 1) % ranks;
        memset(values, -1, (COUNT + 2) * sizeof *values);
        move_all(form, file, false, values + 1, round, 1);
        REQUIRE(form, false, "values",
                are_from(values + 1, COUNT, (round * ranks + whose) * COUNT));
        REQUIRE(form, false, "memory beside the buffer",
                values[0] == -1 && values[COUNT + 1] == -1);
    }
    free(values);
    OK(MPI_File_close, (&file));
    CHECK(MPI_File_close, "the handle is gone", file == MPI_FILE_NULL);
    delete_of_all(name);
}

/* All forms with nothing to do on the odd ranks, and with an ignored status. */
static void test_shares(const Form *form) {
    MPI_File file = open_new("shares", MPI_MODE_RDWR);
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    int values[3], mine = rank % 2 ? 0 : 3;
    fill(values, 3, 3 * rank);
    for (int turn = 0; turn < ranks; turn++) {
        Call call = {file, true, 3 * rank, values, mine, MPI_INT, MPI_STATUS_IGNORE};
        if (form->place == OWN) OK(MPI_File_seek, (file, 3 * rank, MPI_SEEK_SET));
        bool is_turn = form->place == SHARED ? turn == rank : turn == 0;
        if (is_turn) form->call(&call);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    settle(file);
    MPI_Offset size = -1;
    OK(MPI_File_get_size, (file, &size));
    int writers = (ranks + 1) / 2, last = (ranks - 1) / 2 * 2;
    int count = form->place == SHARED || form->place == ORDERED ? 3 * writers : 3 * last + 3;
    REQUIRE(form, true, "size where some ranks write nothing", size == count * (int)sizeof(int));
    OK(MPI_File_close, (&file));
}

/* Buffers in MPI_BOTTOM, and types with gaps and a negative lower bound. */
static void test_memory(void) {
    enum { SIDE = 4 };
    MPI_File file = open_new("memory", MPI_MODE_RDWR);
    int values[SIDE * SIDE], back[SIDE * SIDE];
    fill(values, SIDE * SIDE, 100 * rank);
    MPI_Datatype placed, column, turned;
    MPI_Aint address;
    MPI_Get_address(values, &address);
    MPI_Type_create_hindexed_block(1, SIDE * SIDE, &address, MPI_INT, &placed);
    MPI_Type_commit(&placed);
    MPI_Offset start = rank * (MPI_Offset)sizeof values;
    if (is_able("MPI_File_write_at", "MPI_BOTTOM")) {
        OK(MPI_File_write_at, (file, start, MPI_BOTTOM, 1, placed, MPI_STATUS_IGNORE));
        OK(MPI_File_write_at_all, (file, start, MPI_BOTTOM, 1, placed, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_File_write_at_all, (file, start, values, SIDE * SIDE, MPI_INT, MPI_STATUS_IGNORE));
    }
    MPI_Type_free(&placed);
    settle(file);
    /* The rows of a matrix become columns, from the last one to the first. */
    MPI_Type_vector(SIDE, 1, SIDE, MPI_INT, &column);
    MPI_Type_create_hvector(SIDE, 1, -(MPI_Aint)sizeof(int), column, &turned);
    MPI_Type_commit(&turned);
    memset(back, -1, sizeof back);
    OK(MPI_File_read_at_all, (file, start, &back[SIDE - 1], 1, turned, MPI_STATUS_IGNORE));
    bool is_right = true;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            is_right = is_right && back[j * SIDE + SIDE - 1 - i] == 100 * rank + i * SIDE + j;
    CHECK(MPI_File_read_at_all, "memory with a negative lower bound", is_right);
    MPI_Type_free(&column);
    MPI_Type_free(&turned);
    OK(MPI_File_close, (&file));
}

/* The end of the file: fewer values, then none. */
static void test_end(void) {
    enum { SIZE = 10 };
    const char *path = file_of_integers("end", SIZE);
    MPI_File file;
    MPI_Status status;
    int values[SIZE], count;
    OK(MPI_File_open, (MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int start = SIZE - 2; start < SIZE + 2; start++) {
        int left = start < SIZE ? SIZE - start : 0;
        memset(values, -1, sizeof values);
        OK(MPI_File_read_at, (file, start, values, 5, MPI_INT, &status));
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(MPI_File_read_at, "count at the end of the file", count == left);
        CHECK(MPI_File_read_at, "values before the end", are_from(values, left, start));
        OK(MPI_File_read_at_all, (file, start, values, 5, MPI_INT, &status));
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(MPI_File_read_at_all, "count at the end of the file", count == left);
    }
    MPI_Offset position = -1;
    OK(MPI_File_seek, (file, -2, MPI_SEEK_END));
    OK(MPI_File_read, (file, values, 5, MPI_INT, &status));
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(MPI_File_read, "count at the end of the file", count == 2);
    OK(MPI_File_get_position, (file, &position));
    CHECK(MPI_File_get_position, "after a short read", position == SIZE + 3);
    OK(MPI_File_close, (&file));
}

void test_data(void) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        test_form(&forms[i], "");
        test_shares(&forms[i]);
    }
#if HAVE_LARGE_COUNTS
    for (size_t i = 0; i < sizeof forms_c / sizeof *forms_c; i++) test_form(&forms_c[i], "_c");
#endif
    test_memory();
    test_end();
}
