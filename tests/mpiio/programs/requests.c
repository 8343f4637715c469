/* Calls that do not block, and all ways to wait for them:
 *
 *     mpiexec -n 2 requests DIRECTORY
 *
 * Several go on at once, of one file and of two, with messages among them. */
#include "suite.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MANY = 12, COUNT = 500, SECONDS_MAX = 30 };

/* What is done until all requests are: each of these must come to an end by itself, without another
 * call of MPI-IO. */
typedef void (*Wait)(int count, MPI_Request *requests, MPI_Status *statuses);

static void rest(void) { nanosleep(&(struct timespec){0, 100000}, NULL); }

static void by_wait(int count, MPI_Request *requests, MPI_Status *statuses) {
    for (int i = count - 1; i >= 0; i--) MPI_Wait(&requests[i], &statuses[i]);
}

static void by_test(int count, MPI_Request *requests, MPI_Status *statuses) {
    for (int left = count; left > 0;) {
        for (int i = 0; i < count; i++) {
            int is_done = 0;
            if (requests[i] != MPI_REQUEST_NULL) MPI_Test(&requests[i], &is_done, &statuses[i]);
            left -= is_done;
        }
        if (left) rest();
    }
}

static void by_waitall(int count, MPI_Request *requests, MPI_Status *statuses) {
    MPI_Waitall(count, requests, statuses);
}

static void by_testall(int count, MPI_Request *requests, MPI_Status *statuses) {
    for (int is_done = 0; !is_done; rest()) MPI_Testall(count, requests, &is_done, statuses);
}

static void by_waitany(int count, MPI_Request *requests, MPI_Status *statuses) {
    for (int left = count; left > 0; left--) {
        int index;
        MPI_Status status;
        MPI_Waitany(count, requests, &index, &status);
        statuses[index] = status;
    }
}

static void by_testany(int count, MPI_Request *requests, MPI_Status *statuses) {
    for (int left = count; left > 0;) {
        int index, is_done;
        MPI_Status status;
        MPI_Testany(count, requests, &index, &is_done, &status);
        if (is_done) statuses[index] = status, left--;
        else rest();
    }
}

static void keep(int some, const int *indices, const MPI_Status *found, MPI_Status *statuses) {
    for (int i = 0; i < some; i++) statuses[indices[i]] = found[i];
}

static void by_waitsome(int count, MPI_Request *requests, MPI_Status *statuses) {
    int indices[2 * MANY], some;
    MPI_Status found[2 * MANY];
    for (int left = count; left > 0; left -= some) {
        MPI_Waitsome(count, requests, &some, indices, found);
        keep(some, indices, found, statuses);
    }
}

static void by_testsome(int count, MPI_Request *requests, MPI_Status *statuses) {
    int indices[2 * MANY], some;
    MPI_Status found[2 * MANY];
    for (int left = count; left > 0; left -= some) {
        MPI_Testsome(count, requests, &some, indices, found);
        keep(some, indices, found, statuses);
        if (!some) rest();
    }
}

/* The request stays when its status is told, until it is waited for. */
static void by_get_status(int count, MPI_Request *requests, MPI_Status *statuses) {
    for (int i = 0; i < count; i++) {
        for (int is_done = 0; !is_done; rest())
            MPI_Request_get_status(requests[i], &is_done, &statuses[i]);
        CHECK(MPI_File_iwrite_at, "MPI_Request_get_status", requests[i] != MPI_REQUEST_NULL);
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
}

static const Wait waits[] = {by_wait,    by_test,     by_waitall,  by_testall,   by_waitany,
                             by_testany, by_waitsome, by_testsome, by_get_status};
enum { WAITS = sizeof waits / sizeof *waits };

/* Each rank has a run of MANY parts of COUNT integers; which number is in it says its place. */
static int first_of(int part) { return (rank * MANY + part) * COUNT; }

static void check_counts(const char *words, int count, const MPI_Status *statuses) {
    for (int i = 0; i < count; i++) {
        int found = -1;
        MPI_Get_count(&statuses[i], MPI_INT, &found);
        CHECK(MPI_File_iwrite_at, words, found == COUNT);
    }
}

static MPI_File view_of_integers(const char *name) {
    MPI_File file = open_new(name, MPI_MODE_RDWR);
    OK(MPI_File_set_view, (file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    return file;
}

static void settle(MPI_File file) {
    OK(MPI_File_sync, (file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_sync, (file));
}

static void test_many(Wait wait, int (*parts)[COUNT]) {
    MPI_File file = view_of_integers("many");
    MPI_Request requests[MANY];
    MPI_Status statuses[MANY];
    MPI_Offset position = -1;
    for (int i = 0; i < MANY; i++) fill(parts[i], COUNT, first_of(i));
    OK(MPI_File_seek, (file, first_of(0), MPI_SEEK_SET));
    for (int i = 0; i < MANY; i++) {
        if (i % 2)
            OK(MPI_File_iwrite_at, (file, first_of(i), parts[i], COUNT, MPI_INT, &requests[i]));
        else
            OK(MPI_File_iwrite, (file, parts[i], COUNT, MPI_INT, &requests[i]));
        if (i % 2) OK(MPI_File_seek, (file, COUNT, MPI_SEEK_CUR));
    }
    OK(MPI_File_get_position, (file, &position));
    CHECK(MPI_File_iwrite, "the pointer moves at once", position == first_of(MANY));
    wait(MANY, requests, statuses);
    check_counts("counts of writes", MANY, statuses);
    for (int i = 0; i < MANY; i++)
        CHECK(MPI_File_iwrite_at, "the request is gone", requests[i] == MPI_REQUEST_NULL);
    settle(file);
    memset(parts, -1, MANY * sizeof *parts);
    OK(MPI_File_seek, (file, first_of(0), MPI_SEEK_SET));
    for (int i = 0; i < MANY; i++) OK(MPI_File_iread, (file, parts[i], COUNT, MPI_INT, &requests[i]));
    wait(MANY, requests, statuses);
    check_counts("counts of reads", MANY, statuses);
    for (int i = 0; i < MANY; i++)
        CHECK(MPI_File_iread, "what was written", are_from(parts[i], COUNT, first_of(i)));
    OK(MPI_File_close, (&file));
}

/* Collective calls of two files at once, begun in the same order by all ranks. */
static void test_collective(Wait wait, int (*parts)[COUNT]) {
    MPI_File files[2] = {view_of_integers("first"), view_of_integers("second")};
    MPI_Request requests[MANY];
    MPI_Status statuses[MANY];
    for (int i = 0; i < MANY; i++) {
        fill(parts[i], COUNT, first_of(i));
        OK(MPI_File_iwrite_at_all,
           (files[i % 2], first_of(i), parts[i], COUNT, MPI_INT, &requests[i]));
    }
    wait(MANY, requests, statuses);
    check_counts("counts of collective writes", MANY, statuses);
    for (int i = 0; i < 2; i++) settle(files[i]);
    memset(parts, -1, MANY * sizeof *parts);
    for (int i = 0; i < MANY; i++)
        OK(MPI_File_iread_at_all,
           (files[i % 2], first_of(i), parts[i], COUNT, MPI_INT, &requests[i]));
    wait(MANY, requests, statuses);
    for (int i = 0; i < MANY; i++)
        CHECK(MPI_File_iread_at_all, "what was written", are_from(parts[i], COUNT, first_of(i)));
    for (int i = 0; i < 2; i++) OK(MPI_File_close, (&files[i]));
}

/* Messages around a ring, and writes, waited for together. */
static void test_messages(Wait wait, int (*parts)[COUNT]) {
    MPI_File file = view_of_integers("messages");
    MPI_Request requests[2 * MANY];
    MPI_Status statuses[2 * MANY];
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    int (*got)[COUNT] = malloc(MANY * sizeof *got);
    for (int i = 0; i < MANY; i++) fill(parts[i], COUNT, first_of(i));
    for (int i = 0; i < MANY; i++) {
        OK(MPI_File_iwrite_at, (file, first_of(i), parts[i], COUNT, MPI_INT, &requests[2 * i]));
        if (i % 2)
            MPI_Isend(parts[i], COUNT, MPI_INT, next, i / 2, MPI_COMM_WORLD, &requests[2 * i + 1]);
        else
            MPI_Irecv(got[i], COUNT, MPI_INT, before, i / 2, MPI_COMM_WORLD, &requests[2 * i + 1]);
    }
    wait(2 * MANY, requests, statuses);
    for (int i = 0; i < MANY; i++) check_counts("counts among messages", 1, &statuses[2 * i]);
    for (int i = 0; i < MANY; i += 2)
        CHECK(MPI_File_iwrite_at, "messages among writes",
              are_from(got[i], COUNT, (before * MANY + i + 1) * COUNT));
    settle(file);
    OK(MPI_File_read_at, (file, first_of(0), got, MANY * COUNT, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_iwrite_at, "writes among messages", are_from(got[0], MANY * COUNT, first_of(0)));
    free(got);
    OK(MPI_File_close, (&file));
}

/* A request that is let go is done all the same, some time. */
static void test_free(int (*parts)[COUNT]) {
    MPI_File file = view_of_integers("freed");
    MPI_Request request;
    int values[COUNT];
    for (int i = 0; i < MANY; i++) {
        fill(parts[i], COUNT, first_of(i));
        OK(MPI_File_iwrite_at, (file, first_of(i), parts[i], COUNT, MPI_INT, &request));
        int code = MPI_Request_free(&request);
        CHECK(MPI_File_iwrite_at, "MPI_Request_free",
              code == MPI_SUCCESS && request == MPI_REQUEST_NULL);
    }
    double until = MPI_Wtime() + SECONDS_MAX;
    for (int i = 0; i < MANY && MPI_Wtime() < until; rest()) {
        memset(values, -1, sizeof values);
        OK(MPI_File_read_at, (file, first_of(i), values, COUNT, MPI_INT, MPI_STATUS_IGNORE));
        if (are_from(values, COUNT, first_of(i))) i++;
    }
    CHECK(MPI_File_iwrite_at, "what was let go is written", MPI_Wtime() < until);
    OK(MPI_File_close, (&file));
}

/* A call that is cancelled is done, or it is not; the status says which. */
static void test_cancel(int (*parts)[COUNT]) {
    MPI_File file = view_of_integers("cancelled");
    for (int i = 0; i < MANY; i++) {
        MPI_Request request;
        MPI_Status status;
        int is_cancelled = -1, values[COUNT];
        fill(parts[i], COUNT, first_of(i));
        OK(MPI_File_iwrite_at, (file, first_of(i), parts[i], COUNT, MPI_INT, &request));
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &is_cancelled);
        CHECK(MPI_File_iwrite_at, "MPI_Cancel", is_cancelled == 0 || is_cancelled == 1);
        if (is_cancelled) continue;
        OK(MPI_File_read_at, (file, first_of(i), values, COUNT, MPI_INT, MPI_STATUS_IGNORE));
        CHECK(MPI_File_iwrite_at, "what was not cancelled is written",
              are_from(values, COUNT, first_of(i)));
    }
    OK(MPI_File_close, (&file));
}

/* Errors are told at the beginning, or by the end. */
static void test_errors(void) {
    MPI_File file = open_new("write-only", MPI_MODE_WRONLY);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    int value = 0;
    int code = CALL(MPI_File_iread_at, (file, 0, &value, 1, MPI_INT, &request));
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, &status);
    CHECK(MPI_File_iread_at, "of a write-only file", code != MPI_SUCCESS);
    if (is_able("MPI_File_iwrite_at", "an error at the end")) {
        code = CALL(MPI_File_iwrite_at, (file, -3, &value, 1, MPI_INT, &request));
        if (code == MPI_SUCCESS) code = MPI_Wait(&request, &status);
        CHECK(MPI_File_iwrite_at, "a negative offset", code != MPI_SUCCESS);
    }
    OK(MPI_File_close, (&file));
}

/* Nothing to move, and a status that nobody wants. */
static void test_nothing(void) {
    MPI_File file = view_of_integers("nothing");
    MPI_Request requests[3];
    MPI_Status status;
    int count = -1;
    OK(MPI_File_iwrite_at, (file, 5, NULL, 0, MPI_INT, &requests[0]));
    OK(MPI_File_iwrite_all, (file, NULL, 0, MPI_INT, &requests[1]));
    OK(MPI_File_iread_all, (file, NULL, 0, MPI_INT, &requests[2]));
    MPI_Wait(&requests[0], &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(MPI_File_iwrite_at, "no data", count == 0);
    MPI_Waitall(2, &requests[1], MPI_STATUSES_IGNORE);
    OK(MPI_File_close, (&file));
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    int (*parts)[COUNT] = malloc(MANY * sizeof *parts);
    for (int i = 0; i < WAITS; i++) {
        if (waits[i] == by_testall && !is_able("MPI_File_iwrite_at", "MPI_Testall")) continue;
        test_many(waits[i], parts);
        test_collective(waits[i], parts);
        test_messages(waits[i], parts);
    }
    if (is_able("MPI_File_iwrite_at", "MPI_Request_free")) test_free(parts);
    test_cancel(parts);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    test_errors();
    test_nothing();
    free(parts);
    return finish(false);
}
