/* The program of Figure 2 of the Panda paper (Seamons, Chen, Jones, Jozwiak and Winslett,
 * Server-directed collective I/O in Panda, SC '95), with Penstock, and with the restart that its
 * checkpoints are for.
 *
 *     mpicc panda_figure2.c -o panda_figure2 $(pkg-config --cflags --libs penstock)
 *     mpiexec -n 4 ./panda_figure2                # 100 timesteps, a checkpoint after timestep 50
 *     mpiexec -n 6 ./panda_figure2 --until 100    # on other ranks: goes on from the checkpoint
 *
 * Three arrays are dealt out BLOCK,BLOCK,* over a mesh of ranks, and stored in traditional order, in
 * 8 chunks of whole rows. They make a group: one collective call saves all of them. The paper's
 * arrays are 512 long and 256; here they are 1/8 of that, or as `--size` says.
 *
 *     --path PATH     the store, sim2.zarr
 *     --size N        the length of temperature and pressure; that of density is half
 *     --steps N       how many timesteps this run takes at most; --until N: the number of the last
 *     --every N       timesteps between checkpoints, 50 */
#include <mpi.h>
#include <penstock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS = 3, ARRAYS = 3, TEMPERATURE = 0, PRESSURE = 1, DENSITY = 2 };

/* Ends the program when a call has failed. All ranks have the same error; rank 0 prints it. */
static void check(int code)
{
    if (code == PENSTOCK_OK)
        return;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "panda_figure2: %s\n", penstock_last_error()->text);
    MPI_Finalize();
    exit(1);
}

typedef struct options {
    const char *path;
    uint64_t size, steps, until, every;
} options;

static options parse(int argc, char **argv)
{
    options given = {"sim2.zarr", 64, UINT64_MAX, 100, 50};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        uint64_t number = value ? strtoull(value, NULL, 10) : 0;
        if (value && strcmp(name, "--path") == 0)
            given.path = value;
        else if (number && strcmp(name, "--size") == 0)
            given.size = number;
        else if (number && strcmp(name, "--steps") == 0)
            given.steps = number;
        else if (number && strcmp(name, "--until") == 0)
            given.until = number;
        else if (number && strcmp(name, "--every") == 0)
            given.every = number;
        else {
            fprintf(stderr, "usage: panda_figure2 [--path PATH] [--size N] [--steps N] [--until N] "
                            "[--every N]\n");
            exit(2);
        }
    }
    return given;
}

/* A rank's share of the three arrays. */
typedef struct shares {
    int32_t *temperature;
    double *pressure, *density;
    uint64_t counts[ARRAYS]; /* elements */
} shares;

/* The first values, which depend on the place in the whole array and not on who holds it. */
static void begin(shares *mine, penstock_array *const *arrays, int64_t rank)
{
    for (int n = 0; n < ARRAYS; n++) {
        uint64_t first[DIMS], extent[DIMS], block, stride, at = 0;
        for (size_t dim = 0; dim < DIMS; dim++)
            check(penstock_array_local_indices(arrays[n], rank, 0, dim, &first[dim], &block, &stride,
                                               &extent[dim]));
        for (uint64_t i = 0; i < extent[0]; i++)
            for (uint64_t j = 0; j < extent[1]; j++)
                for (uint64_t k = 0; k < extent[2]; k++, at++) {
                    uint64_t value = (first[0] + i) * 31 + (first[1] + j) * 17 + first[2] + k;
                    if (n == TEMPERATURE)
                        mine->temperature[at] = (int32_t)(value % 1000);
                    else if (n == PRESSURE)
                        mine->pressure[at] = (double)(value % 100);
                    else
                        mine->density[at] = (double)(value % 10);
                }
    }
}

static void compute_next_timestep(shares *mine)
{
    for (uint64_t n = 0; n < mine->counts[TEMPERATURE]; n++)
        mine->temperature[n] = (mine->temperature[n] * 7 + 3) % 1000;
    for (uint64_t n = 0; n < mine->counts[PRESSURE]; n++)
        mine->pressure[n] = mine->pressure[n] * 0.75 + 1;
    for (uint64_t n = 0; n < mine->counts[DENSITY]; n++)
        mine->density[n] = mine->density[n] * 0.5 + 2;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    options given = parse(argc, argv);
    MPI_Comm comm = MPI_COMM_WORLD;
    penstock_session *session;
    check(penstock_session_open(&comm, NULL, &session));
    int64_t rank = penstock_session_rank(session);

    /* Array schema information: all ranks share the first two dimensions. */
    int mesh[2] = {0, 0};
    MPI_Dims_create((int)penstock_session_size(session), 2, mesh);
    uint64_t memory_layout[2] = {(uint64_t)mesh[0], (uint64_t)mesh[1]};
    const char *memory_dist = "BLOCK,BLOCK,*";
    const char *names[ARRAYS] = {"temperature", "pressure", "density"};
    const char *dtypes[ARRAYS] = {"i4", "f8", "f8"};
    uint64_t lengths[ARRAYS] = {given.size, given.size, (given.size + 1) / 2};

    /* The array objects, and the group: a name, and the store that has the schemas, too. */
    penstock_array *arrays[ARRAYS];
    penstock_group *simulation;
    check(penstock_group_create("Sim2", given.path, &simulation));
    for (int n = 0; n < ARRAYS; n++) {
        uint64_t length = lengths[n], shape[DIMS] = {length, length, length};
        uint64_t rows[DIMS] = {(length + 7) / 8, length, length}; /* traditional order */
        check(penstock_array_create(names[n], DIMS, shape, dtypes[n], &arrays[n]));
        check(penstock_array_set_distribution(arrays[n], memory_dist, 2, memory_layout, NULL));
        check(penstock_array_set_chunks(arrays[n], rows, NULL, NULL));
        check(penstock_group_add(simulation, arrays[n]));
    }

    /* This rank's shares of them. */
    shares mine;
    void *memories[ARRAYS];
    for (int n = 0; n < ARRAYS; n++) {
        uint64_t bytes;
        check(penstock_array_local_bytes(arrays[n], rank, &bytes));
        mine.counts[n] = bytes / penstock_array_element_bytes(arrays[n]);
        memories[n] = malloc(bytes ? bytes : 1);
    }
    mine.temperature = memories[TEMPERATURE];
    mine.pressure = memories[PRESSURE];
    mine.density = memories[DENSITY];
    penstock_memory parts[ARRAYS] = {{memories[0], NULL, NULL}, {memories[1], NULL, NULL},
                                     {memories[2], NULL, NULL}};
    penstock_locals locals[ARRAYS] = {{1, &parts[0]}, {1, &parts[1]}, {1, &parts[2]}};

    /* Go on from the newest checkpoint, if there is one. */
    penstock_checkpoint_state *state;
    uint64_t first = 0;
    check(penstock_find_checkpoint(session, simulation, -1, &state));
    if (state != NULL) {
        check(penstock_restart(session, simulation, state, locals, NULL));
        first = penstock_checkpoint_step(state) + 1;
        penstock_checkpoint_free(state);
        if (rank == 0)
            printf("restarts behind timestep %llu\n", (unsigned long long)(first - 1));
    } else {
        begin(&mine, arrays, rank);
    }

    for (uint64_t i = first; i < given.until && i - first < given.steps; i++) {
        compute_next_timestep(&mine);

        /* Collective I/O: all three arrays are output with this single request. */
        penstock_call_options at = PENSTOCK_CALL_OPTIONS_INIT;
        at.time = (double)i;
        check(penstock_timestep(session, simulation, locals, &at, NULL));

        /* Collective I/O: take a checkpoint. */
        if (i > 0 && i % given.every == 0) {
            at.step = (int64_t)i;
            check(penstock_checkpoint(session, simulation, locals, &at, NULL));
        }
    }

    double sums[ARRAYS] = {0}, all[ARRAYS];
    for (uint64_t n = 0; n < mine.counts[TEMPERATURE]; n++)
        sums[TEMPERATURE] += mine.temperature[n];
    for (uint64_t n = 0; n < mine.counts[PRESSURE]; n++)
        sums[PRESSURE] += mine.pressure[n];
    for (uint64_t n = 0; n < mine.counts[DENSITY]; n++)
        sums[DENSITY] += mine.density[n];
    MPI_Reduce(sums, all, ARRAYS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("temperature %.0f, pressure %.6f, density %.6f\n", all[0], all[1], all[2]);

    for (int n = 0; n < ARRAYS; n++) {
        free(memories[n]);
        penstock_array_free(arrays[n]);
    }
    penstock_group_free(simulation);
    check(penstock_session_close(session));
    MPI_Finalize();
    return 0;
}
