/* Penstock for C: collective I/O for distributed arrays, and parallel files.
 *
 * Many processes hold the pieces of one big array; disks are to hold it in another arrangement.
 * The processes make one collective call; the servers that own the disks work out who holds what,
 * decide the order, and pull the pieces out of the processes' memories, or push them in.
 *
 *     MPI_Comm comm = MPI_COMM_WORLD;
 *     penstock_session *session;
 *     penstock_array *u;
 *     penstock_session_open(&comm, NULL, &session);
 *     penstock_array_create("u", 2, (uint64_t[]){64, 64}, "f8", &u);
 *     penstock_array_set_distribution(u, "BLOCK,*", 1, (uint64_t[]){ranks}, NULL);
 *     penstock_array_set_chunks(u, (uint64_t[]){16, 16}, NULL, "zstd:3");
 *     penstock_write(session, "run.zarr", u, local, NULL);
 *     penstock_array_free(u);
 *     penstock_session_close(session);
 *
 * Errors. A function that can fail returns an int: PENSTOCK_OK, or the code of an error, about
 * which penstock_last_error() tells more. An error in a collective call is the error of all ranks:
 * also a wrong argument of one rank ends the call on all of them, and nobody waits.
 *
 * "Collective" means that all ranks of the session make the call, in the same order. What is "the
 * same on all ranks" is compared; ranks that differ get PENSTOCK_ERR_MISMATCH.
 *
 * Shapes, starts and offsets are counted in elements, sizes in bytes. Dimensions are in C order:
 * the last one varies fastest. Strings are UTF-8 and end with a zero byte; functions copy what
 * strings and arrays they are given. Attributes are objects of JSON.
 *
 * A structure of options begins with `size`, which the macro ..._INIT sets: so a library of a later
 * version knows which fields a program has. A structure without it is refused.
 *
 * Threads. A session, a group and an array are used by one thread at a time; over MPI a session by
 * the thread that opened it. Any number of threads use a file system and what it opens.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0

/* The version of the library that runs, such as "0.1.0". */
const char *penstock_version(void);

/* ---------------------------------------------------------------------------------------------
 * Errors
 */

enum {
    PENSTOCK_OK = 0,
    PENSTOCK_ERR_SCHEMA = 1,        /* a schema, shape, type, mesh or option does not fit */
    PENSTOCK_ERR_MISMATCH = 2,      /* the ranks of a collective call ask for different things */
    PENSTOCK_ERR_OVERLAP = 3,       /* boxes that must be disjoint overlap */
    PENSTOCK_ERR_MISSING = 4,       /* a store, array or file is not there */
    PENSTOCK_ERR_DAMAGED = 5,       /* a store is there and cannot be understood */
    PENSTOCK_ERR_READ_ONLY = 6,     /* no permission to write or read there */
    PENSTOCK_ERR_FULL = 7,          /* no space is left */
    PENSTOCK_ERR_BUSY = 8,          /* another job is writing the same target */
    PENSTOCK_ERR_PEER = 9,          /* another rank left, or cannot be reached */
    PENSTOCK_ERR_UNSUPPORTED = 10,  /* Penstock does not do what was asked for */
    PENSTOCK_ERR_IO = 11,           /* a disk or the operating system failed in another way */
    PENSTOCK_ERR_EXISTS = 12        /* something is there already, or a directory is not empty */
};

/* An error says what Penstock could not do, and why. */
typedef struct penstock_error {
    int code;          /* as the function returned it */
    int64_t rank;      /* the rank that met it, or -1 */
    int64_t server;    /* the server that met it, or -1 */
    const char *doing; /* what was being done */
    const char *path;  /* to which file or directory, or NULL */
    uint64_t first;    /* to which bytes of it: the first, and one past the last; */
    uint64_t end;      /* both 0 where it was not about bytes */
    const char *cause; /* why that failed */
    const char *text;  /* all of it in words */
} penstock_error;

/* The error of the last function of this thread that failed; NULL if none has. It stays until
 * another function fails on this thread. */
const penstock_error *penstock_last_error(void);

/* A code in words, such as "Schema". "Ok" for PENSTOCK_OK, "Unknown" for what is no code. */
const char *penstock_code_name(int code);

/* Frees a text that a function has returned through a `char **`. NULL is left alone. */
void penstock_free(void *text);

/* ---------------------------------------------------------------------------------------------
 * Sessions
 */

/* Some ranks and the servers that they share. */
typedef struct penstock_session penstock_session;

/* Answers for options that may be left to Penstock. */
enum { PENSTOCK_AUTO = -1, PENSTOCK_NO = 0, PENSTOCK_YES = 1 };

/* How a session is set up; the same on all ranks. 0 and NULL are the defaults, unless it says
 * otherwise. docs/mpi-programs.md explains each at length. */
typedef struct penstock_session_options {
    size_t size;
    const char *transport; /* how ranks of one host reach each other over MPI: "shared" or
                              "messages" */
    const char *root;      /* the directory of relative paths; with {server} in it a directory of
                              its own for each server */
    uint64_t servers;      /* the number of I/O servers */
    const char *url;       /* in place of servers: standing ones, as "penstock://host:7433" or
                              "unix:///run/penstock.sock" */
    const char *keys;      /* the keys for standing servers of other hosts */
    int dedicated;         /* whether ranks with servers do nothing else: AUTO, NO, YES */
    int sync;              /* whether a write returns only when it is on stable storage; YES */
    int direct;            /* whether to go around the page cache: AUTO (cold reads), NO, YES */
    uint64_t block_bytes;  /* the most bytes that a server moves at once */
    uint64_t background_bytes; /* the most memory that a server fills while disks work */
    uint64_t cache_bytes;  /* the cache of each server, for arrays that stay open */
    const char *strategy;  /* "disk-directed", "two-phase", "caching", or "independent" */
} penstock_session_options;

#define PENSTOCK_SESSION_OPTIONS_INIT                                                        \
    { sizeof(penstock_session_options), NULL, NULL, 0, NULL, NULL, PENSTOCK_AUTO, PENSTOCK_YES, \
      PENSTOCK_AUTO, 0, 0, 0, NULL }

/* Opens a session over the MPI communicator at `comm`: the address of a variable of type MPI_Comm,
 * of whatever MPI the program has loaded. With NULL in place of `comm` the session is embedded:
 * this process is the only rank. `options` may be NULL.
 *
 * Collective over the communicator, which Penstock duplicates. On a dedicated server it returns
 * when the clients have closed the session; penstock_session_is_client() is then 0, and only
 * penstock_session_close() is left to do. */
int penstock_session_open(const void *comm, const penstock_session_options *options,
                          penstock_session **session);

/* As penstock_session_open(), for a communicator as Fortran has it: an integer of `mpi`, or MPI_VAL
 * of `mpi_f08`. */
int penstock_session_open_f(int comm, const penstock_session_options *options,
                            penstock_session **session);

/* A rank's place in a session whose ranks are threads of this process. */
typedef struct penstock_seat penstock_seat;

/* Makes `ranks` seats, for as many threads. Each thread opens its own. */
int penstock_seats_create(size_t ranks, const penstock_session_options *options,
                          penstock_seat **seats);

/* Opens the session of a seat, and frees the seat. Collective. */
int penstock_seat_open(penstock_seat *seat, penstock_session **session);

/* Frees a seat that nobody has opened; the sessions of the others then fail. */
void penstock_seat_free(penstock_seat *seat);

/* This client's rank; -1 on a dedicated server. */
int64_t penstock_session_rank(const penstock_session *session);
/* The number of clients. */
int64_t penstock_session_size(const penstock_session *session);
/* The number of servers. */
int64_t penstock_session_servers(const penstock_session *session);
/* Whether this rank may make calls: 1 or 0. */
int penstock_session_is_client(const penstock_session *session);

/* Waits until all clients are here. Collective. */
int penstock_session_barrier(penstock_session *session);

/* For libraries on top of this one. Makes a collective call for which this rank has no proper
 * arguments, in place of the call that the other ranks make, which fails on all ranks with `code`.
 * `doing` says what was to be done, and `cause` why it cannot be. Collective. */
int penstock_session_refuse(penstock_session *session, int code, const char *doing,
                            const char *cause);

/* Ends a session and frees it, also where it fails. Collective. NULL is left alone. */
int penstock_session_close(penstock_session *session);

/* Leaves a session, for `cause`, and frees it: the calls of all other ranks fail with
 * PENSTOCK_ERR_PEER, in place of waiting. Not collective. */
void penstock_session_leave(penstock_session *session, const char *cause);

/* ---------------------------------------------------------------------------------------------
 * Lists of elements
 */

/* A list of elements of an array, in row-major order, or of places in a memory. */
typedef struct penstock_list penstock_list;

/* The list of `count` runs: lengths[i] elements from offsets[i] on. */
int penstock_list_runs(size_t count, const uint64_t *offsets, const uint64_t *lengths,
                       penstock_list **list);

/* The list of a run of `length` elements from `start` on, repeated in loops, outermost first: each
 * has a count and a stride, elements (Galley's nested-strided request). */
int penstock_list_strided(uint64_t start, uint64_t length, size_t loops, const uint64_t *counts,
                          const int64_t *strides, penstock_list **list);

/* The number of elements of a list. */
uint64_t penstock_list_elements(const penstock_list *list);

void penstock_list_free(penstock_list *list);

/* ---------------------------------------------------------------------------------------------
 * Arrays: what they are, how they lie in the memories of the ranks, and how on disk
 */

typedef struct penstock_array penstock_array;

/* The extent of the first dimension of an array of rows: in a group, such an array has another
 * extent at each timestep and checkpoint, the sum of the rows that the ranks bring. */
#define PENSTOCK_ROWS UINT64_MAX

/* Makes an array of `dims` dimensions. `dtype` is one of "bool", "i1" to "i8", "u1" to "u8", "f2",
 * "f4", "f8", "c8", "c16", or the fields of a record as NumPy has them, "[('x', 'f8'), ('id', 'i4')]":
 * in memory they follow one another without padding. Rank 0 holds all of it, and its chunks are as
 * it lies in memory, until a function below says otherwise. */
int penstock_array_create(const char *name, size_t dims, const uint64_t *shape, const char *dtype,
                          penstock_array **array);

/* Makes a copy, which is changed and freed by itself. */
int penstock_array_copy(const penstock_array *array, penstock_array **copy);

void penstock_array_free(penstock_array *array);

/* In memory: dealt out over a mesh of ranks, as in High-Performance Fortran. `dists` has one of
 * "BLOCK", "CYCLIC", "CYCLIC(k)" and "*" for each dimension, with commas between. The mesh has an
 * extent for each dimension that is not "*"; ranks count through it in row-major order. `halo` is
 * NULL, or has two widths for each dimension, below and above: ghost cells of the local array that
 * are left alone. */
int penstock_array_set_distribution(penstock_array *array, const char *dists, size_t mesh_dims,
                                    const uint64_t *mesh, const uint64_t *halo);

/* In memory: this rank holds `count` boxes, which overlap no other. `starts` and `shapes` have an
 * extent for each dimension, box after box. `count` may be 0. */
int penstock_array_set_boxes(penstock_array *array, size_t count, const uint64_t *starts,
                             const uint64_t *shapes, const uint64_t *halo);

/* In memory: this rank holds the elements of `list`, in their order, or at `places` of its memory
 * where that is not NULL. If one rank gives a list, all do. */
int penstock_array_set_list(penstock_array *array, const penstock_list *list,
                            const penstock_list *places);

/* As penstock_array_set_boxes(), but a write leaves as it is stored what no rank's box holds, and
 * boxes of reads may overlap. */
int penstock_array_set_region_boxes(penstock_array *array, size_t count, const uint64_t *starts,
                                    const uint64_t *shapes);

/* As penstock_array_set_list(), but a write leaves as it is stored what no rank's list holds. */
int penstock_array_set_region_list(penstock_array *array, const penstock_list *list,
                                   const penstock_list *places);

/* On disk: chunks of a Zarr v3 array. `subchunks` is NULL or divides the chunk, which is then a
 * shard. `codec` is NULL or "none", "zstd[:LEVEL]", "gzip[:LEVEL]",
 * "blosc[:CNAME[:LEVEL[:SHUFFLE]]]", each with "+crc32c" behind it if wanted, "crc32c", or the
 * codecs of Zarr's metadata, in JSON. */
int penstock_array_set_chunks(penstock_array *array, const uint64_t *chunk,
                              const uint64_t *subchunks, const char *codec);

/* On disk: one row-major file, "raw" or "npy". */
int penstock_array_set_row_major(penstock_array *array, const char *format);

/* On disk: a dataset of an HDF5 or NetCDF-4 file, "hdf5" or "netcdf". `dataset` is its path in the
 * file, or NULL: then the path of the call names it ("run.h5:/fields/u"), or it has the array's
 * name. `chunk` is NULL for one run of elements. `filters` is NULL or words with "+" between, in
 * this order: "shuffle", "deflate[:LEVEL]", "zstd[:LEVEL]", "bzip2[:LEVEL]", "fletcher32". */
int penstock_array_set_dataset(penstock_array *array, const char *format, const char *dataset,
                               const uint64_t *chunk, const char *filters);

/* On disk: a file for each place of a mesh; only "BLOCK" and "*". */
int penstock_array_set_parts(penstock_array *array, const char *dists, size_t mesh_dims,
                             const uint64_t *mesh);

/* On disk: natural chunking, each rank's share one chunk (Panda, section 2). It is the default. */
int penstock_array_set_natural(penstock_array *array);

/* On disk: each rank's share, or each of its boxes, is a chunk of a Zarr v3 array, whatever its
 * extents; boxes must form a grid. `subchunks` and `codec` are as of penstock_array_set_chunks(). */
int penstock_array_set_shares(penstock_array *array, const uint64_t *subchunks,
                              const char *codec);

/* The names of the dimensions. */
int penstock_array_set_dimension_names(penstock_array *array, const char *const *names);
/* Attributes, an object of JSON, in place of what was there. */
int penstock_array_set_attributes(penstock_array *array, const char *json);
/* The value of elements that nobody has written: one element at `value`. Default: zero. */
int penstock_array_set_fill(penstock_array *array, const void *value);

/* The name, which lives as long as the array. */
const char *penstock_array_name(const penstock_array *array);
/* The number of dimensions. */
size_t penstock_array_dims(const penstock_array *array);
/* The extents, which live as long as the array. */
const uint64_t *penstock_array_shape(const penstock_array *array);
/* The element type, such as "f8", which lives as long as the array. */
const char *penstock_array_dtype(const penstock_array *array);
/* The bytes of an element. */
size_t penstock_array_element_bytes(const penstock_array *array);
/* The attributes as JSON, to be freed with penstock_free(). */
int penstock_array_attributes(const penstock_array *array, char **json);
/* The disk schema in words, such as "chunks [16, 16], zstd:3", to be freed with penstock_free(). */
int penstock_array_disk(const penstock_array *array, char **text);

/* The number of local arrays of `rank`: 1, or that of its boxes. */
int penstock_array_local_count(const penstock_array *array, int64_t rank, size_t *count);
/* The extents of local array `part` of `rank`, halo included, into `shape`, which has room for all
 * dimensions (for 1 where the rank holds a list). */
int penstock_array_local_shape(const penstock_array *array, int64_t rank, size_t part,
                               uint64_t *shape);
/* The bytes of all local arrays of `rank`. */
int penstock_array_local_bytes(const penstock_array *array, int64_t rank, uint64_t *bytes);
/* The elements that `rank` holds in dimension `dim` of local array `part`: blocks of `block`
 * indices, `stride` apart, from `first` on, `extent` indices in all. */
int penstock_array_local_indices(const penstock_array *array, int64_t rank, size_t part, size_t dim,
                                 uint64_t *first, uint64_t *block, uint64_t *stride,
                                 uint64_t *extent);

/* ---------------------------------------------------------------------------------------------
 * Calls about one array
 */

/* One local array. */
typedef struct penstock_memory {
    void *base;             /* its first element; a write reads it only */
    const uint64_t *shape;  /* its extents, or NULL: as penstock_array_local_shape() says */
    const int64_t *strides; /* the bytes from one index to the next in each dimension, or NULL: it
                               is contiguous, in C order */
} penstock_memory;

/* What a collective call did. */
typedef struct penstock_report {
    uint64_t bytes;        /* bytes of the array, or of all arrays of a group; of regions and rows,
                              those of this rank */
    double seconds;        /* wall time on this rank */
    uint64_t blocks;       /* blocks that all servers moved */
    uint64_t disk_bytes;   /* bytes between buffers and disks, decoded, with padding */
    uint64_t transfers;    /* memgets or memputs */
    uint64_t buffer_bytes; /* bytes of the staging buffers of all servers */
    uint64_t servers;      /* number of servers */
} penstock_report;

/* How one call is to be done; the same on all ranks. */
typedef struct penstock_call_options {
    size_t size;
    const char *strategy;   /* of this call; NULL: the session's */
    const char *background; /* of a split call: "disk", "all" or "none"; NULL: what fits */
    const char *attributes; /* of a write: JSON that is added to the array's attributes; of a
                               checkpoint: what else a restart is to know */
    double time;            /* of a timestep or checkpoint; NAN: the default */
    int64_t step;           /* of a checkpoint; -1: the default */
} penstock_call_options;

#define PENSTOCK_CALL_OPTIONS_INIT \
    { sizeof(penstock_call_options), NULL, NULL, NULL, NAN, -1 }

/* Writes an array, whose local array `local` is contiguous, in C order. `path` is a Zarr group for
 * chunks and natural chunking, the file for a row-major one, the directory for parts. `report` may
 * be NULL. Collective; disk-directed (Kotz, TOCS 1997, section 3). One rename replaces what stood
 * there: readers see the old array or the new one, and after an error or a crash the old one. */
int penstock_write(penstock_session *session, const char *path, const penstock_array *array,
                   const void *local, penstock_report *report);

/* Reads an array into the contiguous `local`. Name, shape, dtype and memory schema of `array`
 * count; the store has its own disk schema. Collective. */
int penstock_read(penstock_session *session, const char *path, const penstock_array *array,
                  void *local, penstock_report *report);

/* As penstock_write(), of `count` local arrays of any strides. `options` may be NULL. */
int penstock_write_parts(penstock_session *session, const char *path, const penstock_array *array,
                         size_t count, const penstock_memory *locals,
                         const penstock_call_options *options, penstock_report *report);

/* As penstock_read(), into `count` local arrays of any strides. */
int penstock_read_parts(penstock_session *session, const char *path, const penstock_array *array,
                        size_t count, const penstock_memory *locals,
                        const penstock_call_options *options, penstock_report *report);

/* A call that has begun, and must be ended before its session is closed. */
typedef struct penstock_split penstock_split;

/* Begins a write; the local arrays must be left alone until penstock_split_end(). Collective, in
 * the same order on all ranks (Dickens and Thakur, section 5). Several may be under way. */
int penstock_begin_write(penstock_session *session, const char *path, const penstock_array *array,
                         size_t count, const penstock_memory *locals,
                         const penstock_call_options *options, penstock_split **split);

/* Begins a read; the local arrays must be left alone until penstock_split_end(). Collective. */
int penstock_begin_read(penstock_session *session, const char *path, const penstock_array *array,
                        size_t count, const penstock_memory *locals,
                        const penstock_call_options *options, penstock_split **split);

/* Whether penstock_split_end() would return at once, into `has_ended`: 1 or 0. Never waits; not
 * collective. */
int penstock_split_test(penstock_split *split, int *has_ended);

/* Waits until the call has ended, and frees `split`, also where it fails. Collective; calls may be
 * ended in another order than they were begun. */
int penstock_split_end(penstock_split *split, penstock_report *report);

/* Says what a write (`is_write` 1) or read (0) would do: servers, blocks, bytes, messages, memory,
 * order. `text` is to be freed with penstock_free(). Not collective. */
int penstock_explain(penstock_session *session, const char *path, const penstock_array *array,
                     int is_write, const char *strategy, char **text);

/* Looks up the array at `path`; `name` says which one where it is a group of several, and may be
 * NULL. Rank 0 holds all of it. Not collective. */
int penstock_array_open(penstock_session *session, const char *path, const char *name,
                        penstock_array **array);

/* ---------------------------------------------------------------------------------------------
 * Arrays that stay open: any rank reads or writes any part, without the others
 */

typedef struct penstock_open_array penstock_open_array;

/* Opens the array at `path` to be read, or with `is_writable` 1 to be changed in place, too.
 * Collective. */
int penstock_open_array_open(penstock_session *session, const char *path, const char *name,
                             int is_writable, penstock_open_array **open);

const char *penstock_open_array_name(const penstock_open_array *open);
size_t penstock_open_array_dims(const penstock_open_array *open);
const uint64_t *penstock_open_array_shape(const penstock_open_array *open);
const char *penstock_open_array_dtype(const penstock_open_array *open);

/* Reads the box of `shape` at `start` into `local`. Not collective. */
int penstock_open_array_read(penstock_open_array *open, const uint64_t *start,
                             const uint64_t *shape, const penstock_memory *local);
/* Writes the box of `shape` at `start` from `local`. Not collective. */
int penstock_open_array_write(penstock_open_array *open, const uint64_t *start,
                              const uint64_t *shape, const penstock_memory *local);
/* Reads the elements of `list` to `places` of the one-dimensional `local`, or with NULL to its
 * elements in order. Not collective. */
int penstock_open_array_read_list(penstock_open_array *open, const penstock_list *list,
                                  const penstock_list *places, const penstock_memory *local);
/* Writes the elements of `list` from there. Not collective. */
int penstock_open_array_write_list(penstock_open_array *open, const penstock_list *list,
                                   const penstock_list *places, const penstock_memory *local);
/* Reads this rank's region or share, as `array` has it (a copy of the array that is open, with a
 * memory schema or a region), into `count` local arrays, with all ranks. Collective. */
int penstock_open_array_read_all(penstock_open_array *open, const penstock_array *array,
                                 size_t count, const penstock_memory *locals,
                                 penstock_report *report);
/* Writes this rank's region, as `array` has it, with all ranks. Collective. */
int penstock_open_array_write_all(penstock_open_array *open, const penstock_array *array,
                                  size_t count, const penstock_memory *locals,
                                  penstock_report *report);
/* What the array is: a new penstock_array, for penstock_open_array_read_all(). */
int penstock_open_array_schema(const penstock_open_array *open, penstock_array **array);
/* Brings what all ranks have written to the disks, and, in a session that syncs, to stable storage.
 * Collective. */
int penstock_open_array_flush(penstock_open_array *open);
/* Closes the array and frees it, also where it fails. Collective. */
int penstock_open_array_close(penstock_open_array *open);

/* ---------------------------------------------------------------------------------------------
 * Groups: several arrays that are saved together, through time (Panda, Figure 2)
 */

typedef struct penstock_group penstock_group;

/* Makes a group whose store is the Zarr group at `path`, or the file there if its arrays are to be
 * datasets. */
int penstock_group_create(const char *name, const char *path, penstock_group **group);
void penstock_group_free(penstock_group *group);

/* Adds a copy of an array. Its place in the group is the number of arrays before it. */
int penstock_group_add(penstock_group *group, const penstock_array *array);
/* Puts a copy of `array`, which has another memory schema, in place of the array of its name. */
int penstock_group_replace(penstock_group *group, const penstock_array *array);
/* How many checkpoints are kept: the newest. Default: 2. */
int penstock_group_set_keep(penstock_group *group, uint64_t keep);
/* Attributes of the group, an object of JSON. */
int penstock_group_set_attributes(penstock_group *group, const char *json);
/* Attributes of `time`, such as its units. */
int penstock_group_set_time_attributes(penstock_group *group, const char *json);
/* How many timesteps are in a chunk. Default: 1, or as in the store. */
int penstock_group_set_time_chunk(penstock_group *group, uint64_t timesteps);
/* Adds a static variable of `dims` named dimensions: elements of `dtype` at `values`, in C order,
 * the same on all ranks. `attributes` may be NULL. */
int penstock_group_add_coordinate(penstock_group *group, const char *name, size_t dims,
                                  const char *const *dimension_names, const uint64_t *shape,
                                  const char *dtype, const void *values, const char *attributes);
/* Adds a static variable of strings. */
int penstock_group_add_labels(penstock_group *group, const char *name, size_t dims,
                              const char *const *dimension_names, const uint64_t *shape,
                              const char *const *values, const char *attributes);

/* The local arrays of one array of a group. */
typedef struct penstock_locals {
    size_t count;
    const penstock_memory *memories;
} penstock_locals;

/* Appends a timestep of all arrays, in one collective request. `locals` has an entry for each
 * array, in the order of the group; of an array of rows, its memory names its shape. Readers see
 * the timestep whole or not at all, at any moment and after a crash. Collective. */
int penstock_timestep(penstock_session *session, const penstock_group *group,
                      const penstock_locals *locals, const penstock_call_options *options,
                      penstock_report *report);
int penstock_begin_timestep(penstock_session *session, const penstock_group *group,
                            const penstock_locals *locals, const penstock_call_options *options,
                            penstock_split **split);

/* Saves what a restart needs. A crash at any moment leaves at least one complete checkpoint, if
 * there was one. Collective. */
int penstock_checkpoint(penstock_session *session, const penstock_group *group,
                        const penstock_locals *locals, const penstock_call_options *options,
                        penstock_report *report);
int penstock_begin_checkpoint(penstock_session *session, const penstock_group *group,
                              const penstock_locals *locals, const penstock_call_options *options,
                              penstock_split **split);

/* A complete checkpoint that has been found. */
typedef struct penstock_checkpoint_state penstock_checkpoint_state;

/* Finds the newest complete checkpoint of a group, or that of `step` where it is not negative.
 * `state` is NULL where there is none. Collective. */
int penstock_find_checkpoint(penstock_session *session, const penstock_group *group, int64_t step,
                             penstock_checkpoint_state **state);
/* Reads a checkpoint that was found into `locals`. The number of ranks and the memory schemas may
 * be others than when it was saved; of an array of rows each rank has an even share, as
 * penstock_checkpoint_array() says. The session's next save goes on from here. Collective. */
int penstock_restart(penstock_session *session, const penstock_group *group,
                     const penstock_checkpoint_state *state, const penstock_locals *locals,
                     penstock_report *report);
/* The program's step. */
uint64_t penstock_checkpoint_step(const penstock_checkpoint_state *state);
/* The program's time, or NAN. */
double penstock_checkpoint_time(const penstock_checkpoint_state *state);
/* The number of timesteps that the group had. */
uint64_t penstock_checkpoint_timesteps(const penstock_checkpoint_state *state);
/* The attributes as JSON, to be freed with penstock_free(). */
int penstock_checkpoint_attributes(const penstock_checkpoint_state *state, char **json);
/* The array of the group with this name as it is restarted: one of rows has its extent, and is
 * dealt out evenly. */
int penstock_checkpoint_array(penstock_session *session, const penstock_group *group,
                              const penstock_checkpoint_state *state, const char *name,
                              penstock_array **array);
void penstock_checkpoint_free(penstock_checkpoint_state *state);

/* ---------------------------------------------------------------------------------------------
 * Stores: copies, checks, descriptions
 */

/* Called now and then with the bytes that are done and all there are, by one thread at a time,
 * which penstock_copy() may have started. A result that is not 0 ends the copy; the session of
 * penstock_session_copy() is then over on all ranks. */
typedef int (*penstock_progress)(uint64_t done, uint64_t all, void *context);

/* What a copy makes of its source; NULL and 0 are the defaults. The target is one row-major file,
 * too, where its name ends in ".npy" and no chunks are said. */
typedef struct penstock_copy_options {
    size_t size;
    const char *arrays;      /* only these arrays, with commas between */
    const char *name;        /* what the array is called in the target */
    const char *chunks;      /* as `penstock copy --chunks`: "64,64" or "x=64,y=32" */
    const char *subchunks;
    const char *codec;       /* of an HDF5 or NetCDF-4 file the filters: "shuffle+deflate" */
    const char *row_major;   /* "raw" or "npy": one row-major file */
    size_t raw_dims;         /* of a raw source without a JSON file beside it: dimensions, */
    const uint64_t *raw_shape; /* extents, */
    const char *raw_dtype;   /* and dtype */
    uint64_t memory_bytes;   /* that it may take; 256 MiB */
    int overwrite;
    int drop_attributes;
    uint64_t ranks;          /* of penstock_copy(): threads that share the work; 1 */
    int sync;                /* of penstock_copy(): wait for stable storage; YES */
    penstock_progress progress;
    void *context;
} penstock_copy_options;

#define PENSTOCK_COPY_OPTIONS_INIT                                                              \
    { sizeof(penstock_copy_options), NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 0, 0, 0, \
      0, PENSTOCK_YES, NULL, NULL }

/* What a copy has done. */
typedef struct penstock_copy_report {
    uint64_t bytes;      /* of the arrays */
    uint64_t read_bytes; /* that were read for it */
    double seconds;
    uint64_t slabs;      /* slabs that were copied, */
    uint64_t slabs_found; /* and those that an earlier, unfinished copy had left */
} penstock_copy_report;

/* Copies an array or a whole data set into another arrangement, out of core. Not collective. */
int penstock_copy(const char *source, const char *target, const penstock_copy_options *options,
                  penstock_copy_report *report);
/* The same with all ranks of a session. Collective. */
int penstock_session_copy(penstock_session *session, const char *source, const char *target,
                          const penstock_copy_options *options, penstock_copy_report *report);

/* Reads all that is at `path` and compares what has checksums. The verdict in words goes to `text`,
 * and to `damages` how many things are wrong. Not collective. */
int penstock_verify(const char *path, uint64_t *damages, char **text);
/* Mends a group whose metadata another tool has rewritten; `text` says what, a line each. */
int penstock_repair(const char *path, char **text);
/* Describes what stands at `path`, as `penstock info --json` does. */
int penstock_describe(const char *path, char **json);

/* ---------------------------------------------------------------------------------------------
 * Parallel files (Vesta; Corbett and Feitelson, TOCS 1996)
 */

/* A client of a volume, and in a job its servers. */
typedef struct penstock_fs penstock_fs;
/* A file that is attached. */
typedef struct penstock_file penstock_file;
/* A subfile of a view that is open. */
typedef struct penstock_subfile penstock_subfile;
/* A read or write of a subfile that is under way. */
typedef struct penstock_request penstock_request;

/* How a volume is made. */
typedef struct penstock_volume_options {
    size_t size;
    uint64_t servers;     /* which stay; 1 */
    uint64_t block_bytes; /* of a block; 64 KiB */
    uint64_t capacity;    /* bytes of each server's blocks, allocated; 0: they grow */
    size_t disk_count;
    const char *const *disks; /* directories or raw devices of each server, with {server} */
} penstock_volume_options;

#define PENSTOCK_VOLUME_OPTIONS_INIT { sizeof(penstock_volume_options), 0, 0, 0, 0, NULL }

/* Makes a volume at `path`; {server} in it stands for the number of a server. */
int penstock_volume_create(const char *path, const penstock_volume_options *options);

/* How a volume is opened; the same on all ranks. */
typedef struct penstock_fs_options {
    size_t size;
    uint64_t servers;     /* the number, if it is to be checked; 0: it is not */
    int dedicated;        /* whether ranks with servers do nothing else: NO, YES */
    uint64_t cache_bytes; /* of each server; 0: 32 MiB */
    int direct;           /* whether block files are moved around the page cache: NO, YES */
    const char *keys;     /* for servers of other hosts */
} penstock_fs_options;

#define PENSTOCK_FS_OPTIONS_INIT \
    { sizeof(penstock_fs_options), 0, PENSTOCK_NO, 0, PENSTOCK_NO, NULL }

/* Opens the volume at `path`, or the URL of standing servers. `comm` is the address of an MPI_Comm
 * whose ranks are the clients, or NULL: this process alone. Collective over the communicator. On a
 * dedicated server it returns when the others have closed the volume: penstock_fs_rank() is -1. */
int penstock_fs_open(const void *comm, const char *path, const penstock_fs_options *options,
                     penstock_fs **fs);
/* As penstock_fs_open(), for a communicator as Fortran has it. */
int penstock_fs_open_f(int comm, const char *path, const penstock_fs_options *options,
                       penstock_fs **fs);
int64_t penstock_fs_rank(const penstock_fs *fs);
int64_t penstock_fs_clients(const penstock_fs *fs);
int64_t penstock_fs_servers(const penstock_fs *fs);
uint64_t penstock_fs_block_bytes(const penstock_fs *fs);
/* Saves all, ends the servers, and frees the client, also where it fails. Collective. */
int penstock_fs_close(penstock_fs *fs);
/* Leaves, for `cause`: the calls of the other clients fail. Frees the client. */
void penstock_fs_leave(penstock_fs *fs, const char *cause);

/* Makes a file of `cells` cells and basic striping units of `bsu_bytes` bytes. Cells go round-robin
 * to the servers, from server `base` on; -1: one that is chosen. */
int penstock_fs_create(penstock_fs *fs, const char *path, uint64_t cells, uint64_t bsu_bytes,
                       int64_t base, uint32_t mode);
int penstock_fs_mkdir(penstock_fs *fs, const char *path, uint32_t mode);
int penstock_fs_symlink(penstock_fs *fs, const char *target, const char *path);
/* The target of a symbolic link, to be freed with penstock_free(). */
int penstock_fs_readlink(penstock_fs *fs, const char *path, char **target);
int penstock_fs_remove(penstock_fs *fs, const char *path);
int penstock_fs_rename(penstock_fs *fs, const char *from, const char *to);
/* Makes the file `bytes` long in canonical order. */
int penstock_fs_resize(penstock_fs *fs, const char *path, uint64_t bytes);
/* Gives each cell of the file `bytes` bytes. */
int penstock_fs_resize_cells(penstock_fs *fs, const char *path, uint64_t bytes);
int penstock_fs_chmod(penstock_fs *fs, const char *path, uint32_t mode);
/* Changes owner and group; -1 leaves one as it is. */
int penstock_fs_chown(penstock_fs *fs, const char *path, int64_t user, int64_t group);
/* Saves everything that has been written. */
int penstock_fs_sync(penstock_fs *fs);

enum { PENSTOCK_FILE = 0, PENSTOCK_DIRECTORY = 1, PENSTOCK_SYMLINK = 2 };

/* The attributes of a file, a directory or a symbolic link. Times are nanoseconds since 1970. */
typedef struct penstock_stat {
    int kind;
    uint32_t owner;
    uint32_t group;
    uint32_t mode;
    uint64_t created;
    uint64_t accessed;
    uint64_t changed;
    uint64_t modified;    /* the last change of the contents */
    uint64_t bytes;       /* the size in canonical order, or of a link's target */
    uint64_t cells;       /* cells, bytes of a BSU, and server of cell 0, of a file */
    uint64_t bsu_bytes;
    uint64_t base;
    uint64_t checkpoints; /* the number of checkpoints so far */
} penstock_stat;

int penstock_fs_stat(penstock_fs *fs, const char *path, penstock_stat *stat);
/* The bytes up to the end of each cell, into `bytes`, which has room for `cells` numbers. */
int penstock_fs_cell_bytes(penstock_fs *fs, const char *path, uint64_t cells, uint64_t *bytes);
/* The names in a directory, each with a zero byte behind it, those of directories with a slash;
 * `count` is their number. `names` is to be freed with penstock_free(). */
int penstock_fs_list(penstock_fs *fs, const char *path, size_t *count, char **names);
/* Who has a file attached, as JSON, to be freed with penstock_free(). */
int penstock_fs_status(penstock_fs *fs, const char *path, char **json);

/* The space of a volume, in bytes. */
typedef struct penstock_usage {
    uint64_t bytes;   /* of all blocks, */
    uint64_t used;    /* of those in use, */
    uint64_t of_user; /* and of those that the user's files have */
    int64_t quota;    /* what the user may have, or -1 */
} penstock_usage;

/* The space, and what `user` has of it; -1: this program's user. */
int penstock_fs_usage(penstock_fs *fs, int64_t user, penstock_usage *usage);
/* What `user` may have on all servers together; -1: as much as there is. */
int penstock_fs_quota(penstock_fs *fs, uint32_t user, int64_t bytes);
/* Spreads the volume over `servers`, or with `count` 0 over all of them; the text, which may be
 * NULL, says what has moved, and what could not be. */
int penstock_fs_rebalance(penstock_fs *fs, size_t count, const uint64_t *servers, char **text);

/* A view deals the BSUs of a file out to disjoint subfiles (section 3.2). */
typedef struct penstock_view {
    uint64_t vbs; /* BSUs down a cell that make a block */
    uint64_t vn;  /* blocks down, of different subfiles */
    uint64_t hbs; /* cells across that make a block */
    uint64_t hn;  /* blocks across, of different subfiles */
} penstock_view;

/* One subfile: the whole file, striped over its cells by one BSU. */
#define PENSTOCK_WHOLE_FILE { 1, 1, 1, 1 }

/* Orders of a subfile: blocks, rows of BSUs, or columns. */
enum { PENSTOCK_BLOCK_ORDER = 0, PENSTOCK_ROW_ORDER = 1, PENSTOCK_COLUMN_ORDER = 2 };

/* Moves a file of this machine into the volume, or a subfile of one out of it. `view` may be
 * NULL. */
typedef struct penstock_transfer_options {
    size_t size;
    const penstock_view *view;
    uint64_t subfile;
    int order;
    int of_checkpoint;     /* an export reads the checkpoint */
    uint64_t memory_bytes; /* 0: 16 MiB */
    uint64_t cells;        /* of a file that an import makes; 0: what fits */
    uint64_t bsu_bytes;
    int64_t base;          /* -1: one that is chosen */
    uint32_t mode;
    int overwrite;         /* an export replaces a file that is there */
} penstock_transfer_options;

#define PENSTOCK_TRANSFER_OPTIONS_INIT \
    { sizeof(penstock_transfer_options), NULL, 0, PENSTOCK_BLOCK_ORDER, 0, 0, 0, 0, -1, 0644, 0 }

int penstock_fs_import(penstock_fs *fs, const char *local, const char *path,
                       const penstock_transfer_options *options, uint64_t *bytes);
int penstock_fs_export(penstock_fs *fs, const char *path, const char *local,
                       const penstock_transfer_options *options, uint64_t *bytes);
/* The same with all clients, each of which moves a part. Collective. */
int penstock_fs_import_all(penstock_fs *fs, const char *local, const char *path,
                           const penstock_transfer_options *options, uint64_t *bytes);
int penstock_fs_export_all(penstock_fs *fs, const char *path, const char *local,
                           const penstock_transfer_options *options, uint64_t *bytes);

/* Attaches a file. `access` is "r", "w" or "r+"; `is_reckless` 1 gives up the order of accesses
 * (section 3.4). Not collective. */
int penstock_file_attach(penstock_fs *fs, const char *path, const char *access, int is_reckless,
                         penstock_file **file);
/* Attaches a file with all clients, for collective calls on it. Collective. */
int penstock_file_attach_all(penstock_fs *fs, const char *path, const char *access, int is_reckless,
                             penstock_file **file);
uint64_t penstock_file_cells(const penstock_file *file);
uint64_t penstock_file_bsu_bytes(const penstock_file *file);
uint64_t penstock_file_base(const penstock_file *file);
/* Keeps the contents as they are as the checkpoint; penstock_file_rollback() goes back to it. */
int penstock_file_checkpoint(penstock_file *file);
int penstock_file_rollback(penstock_file *file);
int penstock_file_sync(penstock_file *file);
/* Detaches the file and frees it, also where it fails. Not collective: each client detaches for
 * itself what all have attached. */
int penstock_file_detach(penstock_file *file);

/* Reads or writes a subfile from `offset` on, with all clients, disk-directed. `view` may be NULL.
 * A client that moves nothing gives 0 bytes. `moved` may be NULL. Collective. */
int penstock_file_read_all(penstock_file *file, const penstock_view *view, uint64_t subfile,
                           int order, uint64_t offset, void *memory, size_t bytes, uint64_t *moved);
int penstock_file_write_all(penstock_file *file, const penstock_view *view, uint64_t subfile,
                            int order, uint64_t offset, const void *memory, size_t bytes,
                            uint64_t *moved);

/* A pointer into a subfile that processes share: a token to hand to others (section 4.3). */
typedef struct penstock_pointer {
    uint64_t server;
    uint64_t number;
} penstock_pointer;

/* Opens a subfile. `of_checkpoint` 1 reads the checkpoint. With `pointer` not NULL it moves the
 * pointer that another process has shared. */
int penstock_subfile_open(penstock_file *file, const penstock_view *view, uint64_t subfile,
                          int order, int of_checkpoint, const penstock_pointer *pointer,
                          penstock_subfile **open);
void penstock_subfile_free(penstock_subfile *subfile);

/* Reads or writes at the pointer, and moves it. */
int penstock_subfile_read(penstock_subfile *subfile, void *memory, size_t bytes, uint64_t *moved);
int penstock_subfile_write(penstock_subfile *subfile, const void *memory, size_t bytes,
                           uint64_t *moved);
/* Moves the pointer to `offset` (PENSTOCK_SEEK_SET) or by it (PENSTOCK_SEEK_CUR); the new one goes
 * to `position`, which may be NULL. */
enum { PENSTOCK_SEEK_SET = 0, PENSTOCK_SEEK_CUR = 1 };
int penstock_subfile_seek(penstock_subfile *subfile, int64_t offset, int whence,
                          uint64_t *position);
/* Reads or writes at an offset; the pointer stays. */
int penstock_subfile_read_at(penstock_subfile *subfile, uint64_t offset, void *memory, size_t bytes,
                             uint64_t *moved);
int penstock_subfile_write_at(penstock_subfile *subfile, uint64_t offset, const void *memory,
                              size_t bytes, uint64_t *moved);
/* Begins such a read or write; the memory must be left alone until penstock_request_wait(). */
int penstock_subfile_begin_read_at(penstock_subfile *subfile, uint64_t offset, void *memory,
                                   size_t bytes, penstock_request **request);
int penstock_subfile_begin_write_at(penstock_subfile *subfile, uint64_t offset, const void *memory,
                                    size_t bytes, penstock_request **request);
/* Whether it has ended, into `has_ended`. Never waits. */
int penstock_request_test(penstock_request *request, int *has_ended);
/* Waits for its end, and frees it, also where it fails. */
int penstock_request_wait(penstock_request *request, uint64_t *moved);
/* Makes the pointer one that processes share. */
int penstock_subfile_share(penstock_subfile *subfile, penstock_pointer *pointer);
/* Says what an access would do; `text` is to be freed with penstock_free(). */
int penstock_subfile_explain(penstock_subfile *subfile, int is_write, uint64_t offset,
                             uint64_t bytes, char **text);
/* Has the servers read bytes into their caches. */
int penstock_subfile_prefetch(penstock_subfile *subfile, uint64_t offset, uint64_t bytes);
/* Has the servers write bytes of their caches to disk. */
int penstock_subfile_flush(penstock_subfile *subfile, uint64_t offset, uint64_t bytes);
/* Returns when what has been written to the file is on stable storage. */
int penstock_subfile_sync(penstock_subfile *subfile);

#ifdef __cplusplus
}
#endif

#endif /* PENSTOCK_H */
