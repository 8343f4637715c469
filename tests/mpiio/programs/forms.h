/* Every form of a read and of a write, one function each. Included twice by data.c: SUFFIX is empty,
 * or _c for large counts. */
#define JOINED(name, suffix) name##suffix
#define WITH(name, suffix) JOINED(name, suffix)
#define OK_OF(name, arguments) OK(name, arguments)
#define DO(name, arguments) OK_OF(WITH(name, SUFFIX), arguments)
#define NAMED(name) WITH(name, SUFFIX)
#define MEMORY call->values, call->count, call->type

static void NAMED(do_at)(const Call *call) {
    if (call->is_write)
        DO(MPI_File_write_at, (call->file, call->offset, MEMORY, call->status));
    else
        DO(MPI_File_read_at, (call->file, call->offset, MEMORY, call->status));
}

static void NAMED(do_at_all)(const Call *call) {
    if (call->is_write)
        DO(MPI_File_write_at_all, (call->file, call->offset, MEMORY, call->status));
    else
        DO(MPI_File_read_at_all, (call->file, call->offset, MEMORY, call->status));
}

static void NAMED(do_iat)(const Call *call) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (call->is_write)
        DO(MPI_File_iwrite_at, (call->file, call->offset, MEMORY, &request));
    else
        DO(MPI_File_iread_at, (call->file, call->offset, MEMORY, &request));
    MPI_Wait(&request, call->status);
}

static void NAMED(do_iat_all)(const Call *call) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (call->is_write)
        DO(MPI_File_iwrite_at_all, (call->file, call->offset, MEMORY, &request));
    else
        DO(MPI_File_iread_at_all, (call->file, call->offset, MEMORY, &request));
    MPI_Wait(&request, call->status);
}

static void NAMED(do_at_all_split)(const Call *call) {
    if (call->is_write) {
        DO(MPI_File_write_at_all_begin, (call->file, call->offset, MEMORY));
        OK(MPI_File_write_at_all_end, (call->file, call->values, call->status));
    } else {
        DO(MPI_File_read_at_all_begin, (call->file, call->offset, MEMORY));
        OK(MPI_File_read_at_all_end, (call->file, call->values, call->status));
    }
}

static void NAMED(do_own)(const Call *call) {
    if (call->is_write)
        DO(MPI_File_write, (call->file, MEMORY, call->status));
    else
        DO(MPI_File_read, (call->file, MEMORY, call->status));
}

static void NAMED(do_all)(const Call *call) {
    if (call->is_write)
        DO(MPI_File_write_all, (call->file, MEMORY, call->status));
    else
        DO(MPI_File_read_all, (call->file, MEMORY, call->status));
}

static void NAMED(do_iown)(const Call *call) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (call->is_write)
        DO(MPI_File_iwrite, (call->file, MEMORY, &request));
    else
        DO(MPI_File_iread, (call->file, MEMORY, &request));
    MPI_Wait(&request, call->status);
}

static void NAMED(do_iall)(const Call *call) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (call->is_write)
        DO(MPI_File_iwrite_all, (call->file, MEMORY, &request));
    else
        DO(MPI_File_iread_all, (call->file, MEMORY, &request));
    MPI_Wait(&request, call->status);
}

static void NAMED(do_all_split)(const Call *call) {
    if (call->is_write) {
        DO(MPI_File_write_all_begin, (call->file, MEMORY));
        OK(MPI_File_write_all_end, (call->file, call->values, call->status));
    } else {
        DO(MPI_File_read_all_begin, (call->file, MEMORY));
        OK(MPI_File_read_all_end, (call->file, call->values, call->status));
    }
}

static void NAMED(do_shared)(const Call *call) {
    if (call->is_write)
        DO(MPI_File_write_shared, (call->file, MEMORY, call->status));
    else
        DO(MPI_File_read_shared, (call->file, MEMORY, call->status));
}

static void NAMED(do_ishared)(const Call *call) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (call->is_write)
        DO(MPI_File_iwrite_shared, (call->file, MEMORY, &request));
    else
        DO(MPI_File_iread_shared, (call->file, MEMORY, &request));
    MPI_Wait(&request, call->status);
}

static void NAMED(do_ordered)(const Call *call) {
    if (call->is_write)
        DO(MPI_File_write_ordered, (call->file, MEMORY, call->status));
    else
        DO(MPI_File_read_ordered, (call->file, MEMORY, call->status));
}

static void NAMED(do_ordered_split)(const Call *call) {
    if (call->is_write) {
        DO(MPI_File_write_ordered_begin, (call->file, MEMORY));
        OK(MPI_File_write_ordered_end, (call->file, call->values, call->status));
    } else {
        DO(MPI_File_read_ordered_begin, (call->file, MEMORY));
        OK(MPI_File_read_ordered_end, (call->file, call->values, call->status));
    }
}

static const Form NAMED(forms)[] = {
    {"at", AT, NAMED(do_at)},
    {"at_all", AT, NAMED(do_at_all)},
    {"iat", AT, NAMED(do_iat)},
    {"iat_all", AT, NAMED(do_iat_all)},
    {"at_all_split", AT, NAMED(do_at_all_split)},
    {"own", OWN, NAMED(do_own)},
    {"all", OWN, NAMED(do_all)},
    {"iown", OWN, NAMED(do_iown)},
    {"iall", OWN, NAMED(do_iall)},
    {"all_split", OWN, NAMED(do_all_split)},
    {"shared", SHARED, NAMED(do_shared)},
    {"ishared", SHARED, NAMED(do_ishared)},
    {"ordered", ORDERED, NAMED(do_ordered)},
    {"ordered_split", ORDERED, NAMED(do_ordered_split)},
};

#undef JOINED
#undef WITH
#undef OK_OF
#undef DO
#undef NAMED
#undef MEMORY
