/* What the C programs of the suite share: calls that are counted, checks that are charged to the
 * function they are about, and the flaws that an MPI's own MPI-IO is excused for.
 *
 *     OK(MPI_File_sync, (file));                         the call must succeed
 *     FAILS("no such file", MPI_ERR_NO_SUCH_FILE, MPI_File_delete, (name, MPI_INFO_NULL));
 *     CHECK(MPI_File_get_size, "size after a write", size == 400);
 *
 * The words of a check name it: flaws are looked up by function and words. Every rank makes all
 * checks; `finish` adds up what all ranks have found and prints a line for each function.
 */
#ifndef SUITE_H
#define SUITE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

/* What the build has found this MPI to have: large counts, c2f and f2c, toint and fromint. */
#ifndef HAVE_LARGE_COUNTS
#define HAVE_LARGE_COUNTS 0
#endif
#ifndef HAVE_FORTRAN_HANDLES
#define HAVE_FORTRAN_HANDLES 0
#endif
#ifndef HAVE_INTEGER_HANDLES
#define HAVE_INTEGER_HANDLES 0
#endif

enum { PATH_BYTES_MAX = 4096 };

extern int rank, ranks;
/* The directory for files, which all ranks see. */
extern const char *place;

#define CALL(name, arguments) (count_call(#name), name arguments)
#define OK(name, arguments) SUCCEEDS("must succeed", name, arguments)
/* The same, in words of its own. */
#define SUCCEEDS(words, name, arguments) \
    must_succeed(#name, words, CALL(name, arguments), __FILE__, __LINE__)
#define FAILS(words, class, name, arguments) \
    must_fail(#name, words, (int[]){class, -1}, CALL(name, arguments), __FILE__, __LINE__)
/* The same for several classes, in parentheses, the last one -1. */
#define FAILS_BY(words, classes, name, arguments) \
    must_fail(#name, words, classes, CALL(name, arguments), __FILE__, __LINE__)
#define CHECK(name, words, condition) \
    check(#name, words, (condition), #condition, __FILE__, __LINE__)

void start(int *argc, char ***argv);
/* Ends MPI, and gives the exit code of the program. `all` asks that every function was called. */
int finish(bool all);

void count_call(const char *function);
void must_succeed(const char *function, const char *words, int code, const char *file, int line);
void must_fail(const char *function, const char *words, const int *classes, int code,
               const char *file, int line);
void check(const char *function, const char *words, bool is_fine, const char *condition,
           const char *file, int line);
/* Notes that something of a function was not tested, and why. */
void skip(const char *function, const char *why);
/* Whether the library under test can do what these words name without a crash or a hang; if it
 * cannot, that is noted. */
bool is_able(const char *function, const char *words);
bool is_penstock(void);

/* The name of a file in the directory: one of a few static buffers. */
const char *path_of(const char *name);
int error_class(int code);
/* Of what the ranks found: whether it is true on all. Collective. */
bool on_all(bool is_true);
/* A new file of `count` integers, 0, 1, 2 and so on, made by rank 0 without MPI. Collective. */
const char *file_of_integers(const char *name, int count);
MPI_File open_new(const char *name, int mode);
/* Rank 0 deletes a file of all. Collective. */
void delete_of_all(const char *name);
void fill(int *values, int count, int first);
bool are_from(const int *values, int count, int first);

#endif
