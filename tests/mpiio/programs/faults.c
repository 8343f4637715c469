/* Accesses whose disk fails: every kind of call, on all ranks and on one.
 *
 *     mpiexec -n 3 faults DIRECTORY
 *
 * The kernel refuses the system calls about one file (seccomp), as a full or broken disk would. An
 * access that the failing rank makes alone fails there; a collective one fails on all ranks. None
 * waits, and the rank goes on with other files. */
#include "suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { COUNT = 600, FDS_MAX = 8, EXIT_SKIPPED = 77 };

/* ---------------------------------------------------------------------------------------------
 * Disks that fail
 */

/* Has the kernel refuse system calls with `error` if the bits `mask` of their argument `place` are
 * `value`. Ends the job if it cannot. */
static void refuse(const int *calls, int count, int place_, unsigned mask, unsigned value,
                   int error) {
    struct sock_filter code[64];
    int at = 0;
    size_t argument = offsetof(struct seccomp_data, args) + (size_t)place_ * sizeof(__u64);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) /* behind the next statement */
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i],
                                                  (unsigned char)(count - i), 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)argument);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask);
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                              SECCOMP_RET_ERRNO | (unsigned)error);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)at, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) {
        printf("skipped: seccomp: %s\n", strerror(errno));
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, EXIT_SKIPPED);
    }
}

/* The descriptors that this process has of a file. */
static int descriptors_of(const char *path, int *fds) {
    char wanted[PATH_BYTES_MAX], link[64], target[PATH_BYTES_MAX];
    int count = 0;
    if (!realpath(path, wanted)) return 0;
    DIR *directory = opendir("/proc/self/fd");
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        snprintf(link, sizeof link, "/proc/self/fd/%.32s", entry->d_name);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = 0;
        if (strcmp(target, wanted) == 0 && count < FDS_MAX) fds[count++] = atoi(entry->d_name);
    }
    if (directory) closedir(directory);
    return count;
}

#define LENGTH(array) (int)(sizeof(array) / sizeof *(array))

static const int about_files[] = {
    SYS_read,   SYS_write,   SYS_pread64, SYS_pwrite64, SYS_readv,     SYS_writev,    SYS_preadv,
    SYS_pwritev, SYS_preadv2, SYS_pwritev2, SYS_fsync,   SYS_fdatasync, SYS_ftruncate, SYS_fallocate,
};

/* What a rank's view is: the whole file, its own part, or pairs of integers in turn with others. */
typedef enum { SAME, OWN_PART, INTERLEAVED } Shape;

/* A file whose disk fails. */
typedef struct {
    MPI_File file;
    int fds[FDS_MAX], count;
} Broken;

/* Makes a file of zeros, opens it on all ranks, and lets its disk fail where `is_here`. */
static Broken open_broken(Shape shape, int error, bool is_here) {
    static int number;
    char name[64];
    snprintf(name, sizeof name, "broken-%d", number++);
    Broken broken = {open_new(name, MPI_MODE_RDWR), {0}, 0};
    OK(MPI_File_set_size, (broken.file, (MPI_Offset)COUNT * ranks * sizeof(int)));
    if (shape != SAME) {
        int width = shape == INTERLEAVED ? 2 : COUNT;
        MPI_Aint extent = (MPI_Aint)sizeof(int) * width;
        MPI_Datatype one, mine;
        MPI_Type_contiguous(width, MPI_INT, &one);
        MPI_Type_create_resized(one, 0, extent * ranks, &mine);
        MPI_Type_commit(&mine);
        OK(MPI_File_set_view, (broken.file, extent * rank, MPI_INT, mine, "native", MPI_INFO_NULL));
        MPI_Type_free(&one);
        MPI_Type_free(&mine);
    }
    broken.count = descriptors_of(path_of(name), broken.fds);
    if (broken.count == 0) {
        printf("the file %s has no descriptor\n", name);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    for (int i = 0; is_here && i < broken.count; i++)
        refuse(about_files, LENGTH(about_files), 0, ~0u, (unsigned)broken.fds[i], error);
    MPI_Barrier(MPI_COMM_WORLD);
    return broken;
}

/* Closes it. Its descriptors are never used again, since they are still refused. */
static void close_broken(Broken *broken) {
    CALL(MPI_File_close, (&broken->file)); /* it may fail: it syncs nothing that it owes */
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < broken->count; i++) dup2(null, broken->fds[i]);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---------------------------------------------------------------------------------------------
 * Kinds of call
 */

#define AT file, 0, values, COUNT, MPI_INT
#define HERE file, values, COUNT, MPI_INT
#define EACH(way, name, ...) way(read##name, __VA_ARGS__) way(write##name, __VA_ARGS__)

/* A call that blocks. */
#define BLOCKING(name, ...)                                   \
    static int name##_(MPI_File file, int *values) {          \
        return MPI_File_##name(__VA_ARGS__, MPI_STATUS_IGNORE); \
    }
EACH(BLOCKING, _at, AT)
EACH(BLOCKING, , HERE)
EACH(BLOCKING, _shared, HERE)
EACH(BLOCKING, _at_all, AT)
EACH(BLOCKING, _all, HERE)
EACH(BLOCKING, _ordered, HERE)

/* A call that goes on, and is waited for. */
#define GOING(name, ...)                                               \
    static int i##name##_(MPI_File file, int *values) {                \
        MPI_Request request = MPI_REQUEST_NULL;                        \
        int code = MPI_File_i##name(__VA_ARGS__, &request);            \
        return code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);    \
    }
EACH(GOING, _at, AT)
EACH(GOING, , HERE)
EACH(GOING, _shared, HERE)
EACH(GOING, _at_all, AT)
EACH(GOING, _all, HERE)

/* A call in two parts. */
#define SPLIT(name, ...)                                                             \
    static int name##_begin_(MPI_File file, int *values) {                           \
        int code = MPI_File_##name##_begin(__VA_ARGS__);                             \
        return code ? code : MPI_File_##name##_end(file, values, MPI_STATUS_IGNORE); \
    }
EACH(SPLIT, _at_all, AT)
EACH(SPLIT, _all, HERE)
EACH(SPLIT, _ordered, HERE)

#define KIND(name, is_write, is_collective, is_shared) \
    {"MPI_File_" #name, name##_, is_write, is_collective, is_shared},
#define PAIR(before, after, ...) \
    KIND(before##read##after, false, __VA_ARGS__) KIND(before##write##after, true, __VA_ARGS__)
static const struct kind {
    const char *name;
    int (*call)(MPI_File, int *);
    bool is_write, is_collective, is_shared;
} kinds[] = {
    PAIR(, _at, false, false)       PAIR(, , false, false)       PAIR(, _shared, false, true)
    PAIR(i, _at, false, false)      PAIR(i, , false, false)      PAIR(i, _shared, false, true)
    PAIR(, _at_all, true, false)    PAIR(, _all, true, false)    PAIR(, _ordered, true, true)
    PAIR(i, _at_all, true, false)   PAIR(i, _all, true, false)   PAIR(, _at_all_begin, true, false)
    PAIR(, _all_begin, true, false) PAIR(, _ordered_begin, true, true)
};

/* ---------------------------------------------------------------------------------------------
 * What must come of it
 */

/* Errors of the operating system, and their classes in MPI. */
static const struct {
    int error, class;
    bool is_of_reads;
} errors[] = {{EIO, MPI_ERR_IO, true}, {ENOSPC, MPI_ERR_NO_SPACE, false},
              {EDQUOT, MPI_ERR_QUOTA, false}};

static void must_fail_by(const char *name, const char *words, int class, int code) {
    must_fail(name, words, (int[]){class, -1}, code, __FILE__, __LINE__);
}

/* Whether a call has succeeded is the same on all ranks, where one rank's disk fails. */
static void check_all_alike(const char *name, int code) {
    bool has_failed = code != MPI_SUCCESS, all_have = on_all(has_failed), none = on_all(!has_failed);
    check(name, "one disk fails", all_have || none, "some ranks fail, and others do not", __FILE__,
          __LINE__);
    if (has_failed) must_fail_by(name, "one disk fails", MPI_ERR_IO, code);
}

static void test_all_ranks(const struct kind *kind, Shape shape, int error, int class) {
    int values[COUNT] = {0};
    Broken broken = open_broken(shape, error, true);
    count_call(kind->name);
    must_fail_by(kind->name, "all disks fail", class, kind->call(broken.file, values));
    close_broken(&broken);
}

static void test_one_rank(const struct kind *kind, Shape shape, int bad) {
    int values[COUNT] = {0};
    Broken broken = open_broken(shape, EIO, rank == bad);
    count_call(kind->name);
    int code = kind->call(broken.file, values);
    if (!kind->is_collective && rank != bad) {
        must_succeed(kind->name, "another rank's disk fails", code, __FILE__, __LINE__);
    } else if (shape != INTERLEAVED || !kind->is_collective) {
        must_fail_by(kind->name, "one disk fails", MPI_ERR_IO, code);
    } else { /* the servers, and they may be others, move everything */
        check_all_alike(kind->name, code);
    }
    close_broken(&broken);
}

static void test_accesses(void) {
    for (size_t each = 0; each < sizeof kinds / sizeof *kinds; each++) {
        const struct kind *kind = &kinds[each];
        for (Shape shape = SAME; shape <= INTERLEAVED; shape++) {
            if (kind->is_shared != (shape == SAME)) continue; /* pointers are shared by one view */
            for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
                if (kind->is_write || errors[i].is_of_reads)
                    test_all_ranks(kind, shape, errors[i].error, errors[i].class);
            test_one_rank(kind, shape, 0);
            if (ranks > 1) test_one_rank(kind, shape, ranks - 1);
        }
    }
}

static void test_sizes(void) {
    for (int bad = 0; bad < ranks; bad++) {
        Broken broken = open_broken(SAME, EIO, true);
        FAILS("all disks fail", MPI_ERR_IO, MPI_File_sync, (broken.file));
        FAILS("all disks fail", MPI_ERR_IO, MPI_File_set_size, (broken.file, 7));
        FAILS("all disks fail", MPI_ERR_IO, MPI_File_preallocate, (broken.file, 1 << 20));
        close_broken(&broken);
        broken = open_broken(SAME, EIO, rank == bad); /* a host syncs a file once */
        int code = CALL(MPI_File_sync, (broken.file));
        check_all_alike("MPI_File_sync", code);
        close_broken(&broken);
    }
}

/* Other files are as they were. */
static void test_another_file(void) {
    int values[COUNT], found[COUNT];
    MPI_File file = open_new("whole", MPI_MODE_RDWR);
    MPI_Offset at = (MPI_Offset)rank * COUNT * sizeof(int);
    fill(values, COUNT, rank);
    OK(MPI_File_write_at_all, (file, at, values, COUNT, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all, (file, at, found, COUNT, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_at_all, "a file beside a broken one", are_from(found, COUNT, rank));
    OK(MPI_File_close, (&file));
}

/* The last rank may open nothing to be written, as on a host that has mounted it otherwise. */
static void test_read_only(void) {
    const char *path = file_of_integers("read-only", COUNT);
    const int opening[] = {SYS_openat};
    int found[COUNT];
    MPI_File file = MPI_FILE_NULL;
    if (rank == ranks - 1) refuse(opening, 1, 2, O_ACCMODE, O_WRONLY, EROFS);
    MPI_Barrier(MPI_COMM_WORLD);
    FAILS("read-only on one rank", MPI_ERR_READ_ONLY, MPI_File_open,
          (MPI_COMM_WORLD, path, MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    CHECK(MPI_File_open, "no file comes of it", file == MPI_FILE_NULL);
    OK(MPI_File_open, (MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    OK(MPI_File_read_all, (file, found, COUNT, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_read_all, "a file that may be read", are_from(found, COUNT, 0));
    FAILS("read-only", MPI_ERR_READ_ONLY, MPI_File_write_all,
          (file, found, COUNT, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close, (&file));
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* for MPI_Wait */
    test_accesses();
    test_sizes();
    test_another_file();
    test_read_only();
    return finish(false);
}
