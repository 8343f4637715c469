/* Error handlers: files return errors unless a program says otherwise; a program's own function gets
 * its handle and the code. */
#include "tests.h"

static int calls, last_code;
static MPI_File last_file;

static void handler(MPI_File *file, int *code, ...) {
    calls++;
    last_file = *file;
    last_code = *code;
}

static int other_calls;

static void other_handler(MPI_File *file, int *code, ...) {
    (void)file, (void)code;
    other_calls++;
}

static void forget(void) {
    calls = other_calls = 0;
    last_code = MPI_SUCCESS;
    last_file = MPI_FILE_NULL;
}

static void test_defaults(MPI_File file) {
    MPI_Errhandler found = MPI_ERRHANDLER_NULL;
    OK(MPI_File_get_errhandler, (MPI_FILE_NULL, &found));
    CHECK(MPI_File_get_errhandler, "the default of files", found == MPI_ERRORS_RETURN);
    OK(MPI_File_get_errhandler, (file, &found));
    CHECK(MPI_File_get_errhandler, "of a new file", found == MPI_ERRORS_RETURN);
    /* Errors of files are no errors of communicators, which would end the job. */
    FAILS("a negative offset", MPI_ERR_ARG, MPI_File_seek, (file, -1, MPI_SEEK_SET));
}

static void test_own(MPI_File file) {
    MPI_Errhandler own = MPI_ERRHANDLER_NULL, found = MPI_ERRHANDLER_NULL;
    OK(MPI_File_create_errhandler, (handler, &own));
    OK(MPI_File_set_errhandler, (file, own));
    OK(MPI_File_get_errhandler, (file, &found));
    CHECK(MPI_File_get_errhandler, "the program's own", found == own);
    MPI_Errhandler_free(&found);
    MPI_Errhandler_free(&own);
    CHECK(MPI_File_create_errhandler, "the handle is gone", own == MPI_ERRHANDLER_NULL);
    forget();
    CALL(MPI_File_seek, (file, -1, MPI_SEEK_SET));
    CHECK(MPI_File_set_errhandler, "the function is called", calls == 1);
    CHECK(MPI_File_set_errhandler, "it gets the handle", last_file == file);
    CHECK(MPI_File_set_errhandler, "it gets the code", error_class(last_code) == MPI_ERR_ARG);
    forget();
    int value;
    CALL(MPI_File_read_at_all, (file, -1, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_set_errhandler, "of a collective call",
          calls == 1 && last_file == file && error_class(last_code) == MPI_ERR_ARG);
    forget();
    OK(MPI_File_call_errhandler, (file, MPI_ERR_NO_SPACE));
    CHECK(MPI_File_call_errhandler, "the function is called", calls == 1);
    CHECK(MPI_File_call_errhandler, "it gets the handle", last_file == file);
    CHECK(MPI_File_call_errhandler, "it gets the code", last_code == MPI_ERR_NO_SPACE);
    OK(MPI_File_set_errhandler, (file, MPI_ERRORS_RETURN));
    forget();
    FAILS("a negative offset", MPI_ERR_ARG, MPI_File_seek, (file, -1, MPI_SEEK_SET));
    OK(MPI_File_call_errhandler, (file, MPI_ERR_NO_SPACE));
    CHECK(MPI_File_set_errhandler, "not the old one", calls == 0);
}

/* That of MPI_FILE_NULL is for files that cannot be opened, and for those opened from now on. */
static void test_null(MPI_File before) {
    MPI_Errhandler own, other, found;
    MPI_File file = MPI_FILE_NULL, missing = MPI_FILE_NULL;
    OK(MPI_File_create_errhandler, (handler, &own));
    OK(MPI_File_create_errhandler, (other_handler, &other));
    OK(MPI_File_set_errhandler, (MPI_FILE_NULL, own));
    OK(MPI_File_get_errhandler, (MPI_FILE_NULL, &found));
    CHECK(MPI_File_get_errhandler, "of MPI_FILE_NULL", found == own);
    MPI_Errhandler_free(&found);
    forget();
    CALL(MPI_File_open,
         (MPI_COMM_WORLD, path_of("missing"), MPI_MODE_RDONLY, MPI_INFO_NULL, &missing));
    CHECK(MPI_File_open, "the handler of MPI_FILE_NULL", calls == 1);
    CHECK(MPI_File_open, "it gets MPI_FILE_NULL and the code",
          last_file == MPI_FILE_NULL && error_class(last_code) == MPI_ERR_NO_SUCH_FILE);
    forget();
    CALL(MPI_File_delete, (path_of("missing"), MPI_INFO_NULL));
    CHECK(MPI_File_delete, "the handler of MPI_FILE_NULL",
          calls == 1 && error_class(last_code) == MPI_ERR_NO_SUCH_FILE);
    file = open_new("inherits", MPI_MODE_RDWR);
    forget();
    CALL(MPI_File_seek, (file, -1, MPI_SEEK_SET));
    CHECK(MPI_File_open, "the new file inherits it", calls == 1 && last_file == file);
    forget();
    CALL(MPI_File_seek, (before, -1, MPI_SEEK_SET));
    CHECK(MPI_File_set_errhandler, "not for files that are open", calls == 0);
    OK(MPI_File_set_errhandler, (file, other));
    forget();
    CALL(MPI_File_seek, (file, -1, MPI_SEEK_SET));
    CHECK(MPI_File_set_errhandler, "each file has its own", calls == 0 && other_calls == 1);
    OK(MPI_File_close, (&file));
    OK(MPI_File_set_errhandler, (MPI_FILE_NULL, MPI_ERRORS_RETURN));
    MPI_Errhandler_free(&own);
    MPI_Errhandler_free(&other);
}

void test_handlers(void) {
    MPI_File file = open_new("handled", MPI_MODE_RDWR);
    test_defaults(file);
    test_own(file);
    test_null(file);
    OK(MPI_File_close, (&file));
}
