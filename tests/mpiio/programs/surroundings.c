/* What programs do besides: threads, children, hundreds of files, a file that is opened twice.
 *
 *     mpiexec -n 3 surroundings DIRECTORY */
#include "suite.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 500, THREADS = 3, ROUNDS = 20, FILES = 300, FDS_OF_A_FILE_MAX = 2 };

/* The integers of a rank in turn with those of the others. */
static MPI_Datatype in_turn(void) {
    MPI_Datatype mine;
    MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)sizeof(int) * ranks, &mine);
    MPI_Type_commit(&mine);
    return mine;
}

static void view_in_turn(MPI_File file) {
    MPI_Datatype mine = in_turn();
    OK(MPI_File_set_view,
       (file, (MPI_Offset)sizeof(int) * rank, MPI_INT, mine, "native", MPI_INFO_NULL));
    MPI_Type_free(&mine);
}

/* ---------------------------------------------------------------------------------------------
 * Threads
 */

typedef struct {
    int number;
    MPI_Comm comm;
    MPI_File own, common;
    bool is_well; /* checks are counted on the main thread */
} Thread;

/* Collective calls on a file of the thread's own, and independent ones on a file of all. */
static void *run_thread(void *given) {
    Thread *thread = given;
    int values[COUNT], found[COUNT];
    thread->is_well = true;
    for (int round = 0; round < ROUNDS; round++) {
        int first = (round * THREADS + thread->number) * ranks + rank;
        MPI_Offset at = (MPI_Offset)(thread->number * ranks + rank) * COUNT * (int)sizeof(int);
        fill(values, COUNT, first);
        thread->is_well &=
            !MPI_File_write_at_all(thread->own, 0, values, COUNT, MPI_INT, MPI_STATUS_IGNORE);
        memset(found, -1, sizeof found);
        thread->is_well &=
            !MPI_File_read_at_all(thread->own, 0, found, COUNT, MPI_INT, MPI_STATUS_IGNORE);
        thread->is_well &= are_from(found, COUNT, first);
        thread->is_well &=
            !MPI_File_write_at(thread->common, at, values, COUNT, MPI_INT, MPI_STATUS_IGNORE);
        memset(found, -1, sizeof found);
        MPI_Request request;
        thread->is_well &= !MPI_File_iread_at(thread->common, at, found, COUNT, MPI_INT, &request);
        thread->is_well &= !MPI_Wait(&request, MPI_STATUS_IGNORE);
        thread->is_well &= are_from(found, COUNT, first);
    }
    return NULL;
}

static void test_threads(void) {
    int given;
    MPI_Query_thread(&given);
    if (given != MPI_THREAD_MULTIPLE) {
        skip("MPI_File_write_at_all", "threads: this MPI has no MPI_THREAD_MULTIPLE");
        return;
    }
    pthread_t ids[THREADS];
    Thread threads[THREADS];
    MPI_File common = open_new("common", MPI_MODE_RDWR);
    for (int i = 0; i < THREADS; i++) {
        char name[32];
        snprintf(name, sizeof name, "thread-%d", i);
        threads[i] = (Thread){.number = i, .common = common};
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
        OK(MPI_File_open, (threads[i].comm, path_of(name), MPI_MODE_CREATE | MPI_MODE_RDWR,
                           MPI_INFO_NULL, &threads[i].own));
        view_in_turn(threads[i].own);
    }
    for (int i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, run_thread, &threads[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        count_call("MPI_File_write_at_all");
        CHECK(MPI_File_write_at_all, "calls of several threads", threads[i].is_well);
        OK(MPI_File_close, (&threads[i].own));
        MPI_Comm_free(&threads[i].comm);
    }
    OK(MPI_File_close, (&common));
}

/* ---------------------------------------------------------------------------------------------
 * Children
 */

static void leave_at_once(void) { _exit(0); }
static void leave_in_order(void) { exit(0); } /* runs what libraries do at the end */
static void become_another(void) {
    execlp("true", "true", (char *)NULL);
    _exit(1);
}

static void test_children(void) {
    void (*const ends[])(void) = {leave_at_once, become_another, leave_in_order};
    int values[COUNT], found[COUNT];
    MPI_File file = open_new("parent", MPI_MODE_RDWR);
    view_in_turn(file);
    for (int i = 0; i < (int)(sizeof ends / sizeof *ends); i++) {
        MPI_Request request;
        fill(values, COUNT, i);
        OK(MPI_File_iwrite_at_all, (file, 0, values, COUNT, MPI_INT, &request));
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) ends[i]();
        int status = -1;
        waitpid(child, &status, 0);
        CHECK(MPI_File_open, "a child ends as it wants to", status == 0);
        CHECK(MPI_File_iwrite_at_all, "a call goes on beside a child",
              MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        OK(MPI_File_read_at_all, (file, 0, found, COUNT, MPI_INT, MPI_STATUS_IGNORE));
        CHECK(MPI_File_read_at_all, "a file beside a child", are_from(found, COUNT, i));
    }
    OK(MPI_File_close, (&file));
}

/* ---------------------------------------------------------------------------------------------
 * Files
 */

static int descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

static void test_many_files(void) {
    static MPI_File files[FILES];
    int values[COUNT], found[COUNT], before = 0;
    for (int i = 0; i < FILES; i++) {
        char name[32];
        bool is_alone = i % 3 == 2;
        snprintf(name, sizeof name, "many-%d-%d", i, is_alone ? rank : 0);
        if (i == 3) before = descriptors(); /* both communicators have been met */
        OK(MPI_File_open, (is_alone ? MPI_COMM_SELF : MPI_COMM_WORLD, path_of(name),
                           MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &files[i]));
        view_in_turn(files[i]);
        fill(values, COUNT, i + rank);
        OK(MPI_File_write_at_all, (files[i], 0, values, COUNT, MPI_INT, MPI_STATUS_IGNORE));
    }
    CHECK(MPI_File_open, "descriptors of a file",
          descriptors() - before <= FDS_OF_A_FILE_MAX * (FILES - 3));
    for (int turn = 0; turn < FILES; turn++) {
        int i = turn * 7 % FILES; /* another order: 7 and FILES have no common divisor */
        OK(MPI_File_read_at_all, (files[i], 0, found, COUNT, MPI_INT, MPI_STATUS_IGNORE));
        CHECK(MPI_File_read_at_all, "one of hundreds of files", are_from(found, COUNT, i + rank));
        OK(MPI_File_close, (&files[i]));
    }
    CHECK(MPI_File_close, "descriptors after all is closed", descriptors() <= before + 3);
}

static void test_twice(bool is_atomic) {
    int values[COUNT], found[COUNT];
    MPI_Offset size;
    MPI_File one = open_new("twice", MPI_MODE_RDWR), other;
    OK(MPI_File_open,
       (MPI_COMM_WORLD, path_of("twice"), MPI_MODE_RDWR, MPI_INFO_NULL, &other));
    OK(MPI_File_set_atomicity, (one, is_atomic));
    OK(MPI_File_set_atomicity, (other, is_atomic));
    view_in_turn(one);
    for (int round = 0; round < 4; round++) {
        MPI_File from = round % 2 ? other : one, to = round % 2 ? one : other;
        int neighbour = (rank + 1) % ranks;
        fill(values, COUNT, round + rank);
        OK(MPI_File_set_view, (to, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
        view_in_turn(from);
        OK(MPI_File_write_at_all, (from, 0, values, COUNT, MPI_INT, MPI_STATUS_IGNORE));
        if (!is_atomic) OK(MPI_File_sync, (from));
        MPI_Barrier(MPI_COMM_WORLD);
        if (!is_atomic) OK(MPI_File_sync, (to));
        for (int i = 0; i < COUNT; i += COUNT / 5) {
            OK(MPI_File_read_at, (to, (MPI_Offset)i * ranks + neighbour, found, 1, MPI_INT,
                                  MPI_STATUS_IGNORE));
            CHECK(MPI_File_read_at, "what another handle has written",
                  found[0] == round + neighbour + i);
        }
        OK(MPI_File_get_size, (to, &size));
        CHECK(MPI_File_get_size, "what another handle has written",
              size == (MPI_Offset)COUNT * ranks * (int)sizeof(int));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    OK(MPI_File_close, (&one));
    OK(MPI_File_close, (&other));
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    test_threads();
    test_children();
    test_many_files();
    test_twice(false);
    test_twice(true);
    return finish(false);
}
