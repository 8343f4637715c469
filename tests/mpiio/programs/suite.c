#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rank, ranks;
const char *place;

typedef struct {
    const char *name;
    bool is_there;
    int calls, checks, failures, known;
    const char *skipped;
} Function;

#define FUNCTION(name, is_there) {name, is_there, 0, 0, 0, 0, NULL},
static Function functions[] = {
#include "names.h"
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

typedef struct {
    const char *mpis, *function, *words, *reason;
} Flaw;

static const Flaw flaws[] = {
#include "flaws.h"
    {NULL, NULL, NULL, NULL},
};

static Function *function_of(const char *name) {
    for (int i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0) return &functions[i];
    fprintf(stderr, "%s is not in the list of functions\n", name);
    abort();
}

bool is_penstock(void) {
    static int answer = -1;
    if (answer >= 0) return answer;
    answer = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[PATH_BYTES_MAX];
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "libpenstock_mpiio")) answer = 1;
    if (maps) fclose(maps);
    return answer;
}

static const char *name_of_mpi(void) {
#ifdef MPI_ABI
    return "abi";
#else
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return strstr(version, "Open MPI") ? "openmpi" : "mpich";
#endif
}

/* The flaw that excuses a failure, of which only an MPI's own MPI-IO is. */
static const Flaw *flaw_of(const char *function, const char *words) {
    if (is_penstock()) return NULL;
    for (const Flaw *flaw = flaws; flaw->mpis; flaw++)
        if (strstr(flaw->mpis, name_of_mpi()) && strcmp(flaw->words, words) == 0 &&
            (strcmp(flaw->function, function) == 0 || strcmp(flaw->function, "*") == 0))
            return flaw;
    return NULL;
}

void count_call(const char *name) { function_of(name)->calls++; }

static void fail(const char *name, const char *words, const char *what, const char *file,
                 int line) {
    Function *function = function_of(name);
    const Flaw *flaw = flaw_of(name, words);
    if (flaw) {
        function->known++;
        return;
    }
    function->failures++;
    printf("%s:%d: rank %d of %d: %s: %s: %s\n", file, line, rank, ranks, name, words, what);
    fflush(stdout);
}

static const char *text_of(int code) {
    static char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    return text;
}

void must_succeed(const char *name, const char *words, int code, const char *file, int line) {
    function_of(name)->checks++;
    if (code != MPI_SUCCESS) fail(name, words, text_of(code), file, line);
}

void must_fail(const char *name, const char *words, const int *classes, int code,
               const char *file, int line) {
    function_of(name)->checks++;
    if (code == MPI_SUCCESS) {
        fail(name, words, "it succeeds", file, line);
        return;
    }
    for (; *classes != -1; classes++)
        if (error_class(code) == *classes) return;
    char what[MPI_MAX_ERROR_STRING + 64];
    snprintf(what, sizeof what, "error class %d: %s", error_class(code), text_of(code));
    fail(name, words, what, file, line);
}

void check(const char *name, const char *words, bool is_fine, const char *condition,
           const char *file, int line) {
    function_of(name)->checks++;
    if (!is_fine) fail(name, words, condition, file, line);
}

void skip(const char *name, const char *why) {
    if (rank == 0) printf("skipped: %s: %s\n", name, why);
    function_of(name)->skipped = why;
}

bool is_able(const char *name, const char *words) {
    const Flaw *flaw = flaw_of(name, words);
    if (flaw) function_of(name)->known++;
    return flaw == NULL;
}

int error_class(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

bool on_all(bool is_true) {
    int mine = is_true, all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return all;
}

const char *path_of(const char *name) {
    static char paths[8][PATH_BYTES_MAX];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH_BYTES_MAX, "%s/%s", place, name);
    return path;
}

const char *file_of_integers(const char *name, int count) {
    const char *path = path_of(name);
    if (rank == 0) {
        FILE *file = fopen(path, "wb");
        for (int i = 0; file && i < count; i++) fwrite(&i, sizeof i, 1, file);
        if (!file || fclose(file)) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
}

MPI_File open_new(const char *name, int mode) {
    MPI_File file = MPI_FILE_NULL;
    const char *path = path_of(name);
    if (rank == 0) unlink(path);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_open, (MPI_COMM_WORLD, path, mode | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    if (file == MPI_FILE_NULL) MPI_Abort(MPI_COMM_WORLD, 3);
    return file;
}

void delete_of_all(const char *name) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) OK(MPI_File_delete, (path_of(name), MPI_INFO_NULL));
    MPI_Barrier(MPI_COMM_WORLD);
}

void fill(int *values, int count, int first) {
    for (int i = 0; i < count; i++) values[i] = first + i;
}

bool are_from(const int *values, int count, int first) {
    for (int i = 0; i < count; i++)
        if (values[i] != first + i) return false;
    return true;
}

void start(int *argc, char ***argv) {
    int given;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (*argc < 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", (*argv)[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    place = (*argv)[1];
}

/* One word for a function, of what all ranks have found; whether that is fine. */
static bool verdict(const Function *function, bool all, const char **word) {
    bool was_called = function->calls > 0;
    if (!function->is_there) {
        *word = "missing";
        return true;
    }
    *word = function->failures > 0                  ? "FAILED"
            : !was_called && (all && !function->skipped) ? "NEVER CALLED"
            : function->skipped                          ? "skipped"
            : function->known > 0                        ? "ok, but for known flaws"
                                                         : "ok";
    return function->failures == 0 && (was_called || !all || function->skipped);
}

int finish(bool all) {
    int totals[5] = {0}, are_bad = 0;
    for (int i = 0; i < FUNCTIONS; i++) {
        Function *each = &functions[i];
        int mine[4] = {each->calls, each->checks, each->failures, each->known}, sum[4];
        MPI_Allreduce(mine, sum, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        each->calls = sum[0], each->checks = sum[1], each->failures = sum[2], each->known = sum[3];
        if (each->calls == 0 && !all) continue;
        const char *word;
        bool is_fine = verdict(each, all, &word);
        are_bad += !is_fine;
        totals[0] += each->is_there, totals[1] += each->calls, totals[2] += each->checks;
        totals[3] += each->failures, totals[4] += each->known;
        if (rank == 0) printf("%s %s\n", word, each->name);
    }
    if (rank == 0) {
        printf("\n%9s %9s %9s %9s %9s\n", "functions", "calls", "checks", "failures", "known");
        printf("%9d %9d %9d %9d %9d\n", totals[0], totals[1], totals[2], totals[3], totals[4]);
        printf("%s, %d ranks, %s\n", are_bad ? "FAILED" : "all right", ranks,
               is_penstock() ? "libpenstock_mpiio" : "the MPI's own MPI-IO");
    }
    MPI_Finalize();
    return are_bad ? 1 : 0;
}
