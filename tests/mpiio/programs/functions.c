/* Calls every function of MPI-IO, and looks at what it does:
 *
 *     mpiexec -n 3 functions DIRECTORY
 *
 * Prints a line for each function and a table; the exit code is 0 if all is right. */
#include "tests.h"

int main(int argc, char **argv) {
    start(&argc, &argv);
    test_files();
    test_views();
    test_data();
    test_errors();
    test_handlers();
    test_datareps();
    test_large();
    return finish(true);
}
