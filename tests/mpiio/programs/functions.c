/* Calls every function of MPI-IO, and looks at what it does:
 *
 *     mpiexec -n 3 functions DIRECTORY
 *     mpiexec -n 3 functions DIRECTORY errors
 *
 * Prints a line for each function and a table; the exit code is 0 if all is right. With the name of
 * a part it does that part alone, and then does not ask for the other functions. */
#include "tests.h"

#include <string.h>

static const struct {
    const char *name;
    void (*test)(void);
} parts[] = {
    {"files", test_files},       {"views", test_views},       {"data", test_data},
    {"errors", test_errors},     {"handlers", test_handlers}, {"datareps", test_datareps},
    {"large", test_large},
};

int main(int argc, char **argv) {
    start(&argc, &argv);
    const char *chosen = argc > 2 ? argv[2] : NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!chosen || strcmp(chosen, parts[i].name) == 0) parts[i].test();
    return finish(chosen == NULL);
}
