/* Writes a cube of doubles, BLOCK over three dimensions, by parallel HDF5, collectively.
 *
 *     mpiexec -n 8 parallel_hdf5 FILE EXTENT CHUNKED ROUNDS
 *
 * EXTENT is that of the cube, which 2 x 2 x 2 ranks share. CHUNKED is 1 for a chunk for each rank,
 * or 0 for one run of elements. Rank 0 prints the seconds of each round, from the creation of the
 * file to its end; nothing is synced. */

#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void write_once(const char *path, hsize_t extent, int is_chunked, const double *part,
                       const hsize_t *start)
{
    hsize_t shape[3] = {extent, extent, extent}, half[3] = {extent / 2, extent / 2, extent / 2};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t space = H5Screate_simple(3, shape, NULL);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    if (is_chunked)
        H5Pset_chunk(list, 3, half);
    hid_t set = H5Dcreate2(file, "u", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    hid_t memory = H5Screate_simple(3, half, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, half, NULL);
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    if (H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, transfer, part) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    H5Pclose(transfer);
    H5Sclose(memory);
    H5Dclose(set);
    H5Pclose(list);
    H5Sclose(space);
    H5Fclose(file);
    H5Pclose(access);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5 || ranks != 8)
        MPI_Abort(MPI_COMM_WORLD, 2);
    hsize_t extent = strtoull(argv[2], NULL, 10), half = extent / 2;
    hsize_t start[3] = {rank / 4 * half, rank / 2 % 2 * half, rank % 2 * half};
    double *part = malloc(half * half * half * sizeof *part);
    for (hsize_t at = 0; at < half * half * half; at++)
        part[at] = (double)(at % 1000) + rank;
    for (int round = 0; round < atoi(argv[4]); round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        write_once(argv[1], extent, atoi(argv[3]), part, start);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("%.9f\n", MPI_Wtime() - begun);
    }
    free(part);
    MPI_Finalize();
    return 0;
}
