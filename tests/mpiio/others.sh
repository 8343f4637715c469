#!/bin/bash
# Programs of others, on their MPI's own MPI_File_* and on Penstock's: tests/mpiio/others.md.
#
#   tests/mpiio/others.sh [DIR] [mpi4py|ior|pnetcdf|e3sm-io|hdf5|netcdf|mpich|fortran ...]
#
# DIR (./others) has the programs: others.md tells which, and where each is looked for. Each test runs
# twice, in directories of its own below DIR/run; what failed stays there. A table is printed at the
# end; DIR/results.tsv has a line for each test. The exit code is 1 if a test passes on the MPI's own
# and fails on Penstock's.
set -u -o pipefail

all=(mpi4py ior pnetcdf e3sm-io hdf5 netcdf mpich fortran)
case ${1:-} in
-h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
mpi4py | ior | pnetcdf | e3sm-io | hdf5 | netcdf | mpich | fortran | '') top=others ;;
*) top=$1; shift ;;
esac
[ $# = 0 ] && set -- "${all[@]}"
mkdir -p "$top/run/tmp" "$top/build" || exit 2
top=$(cd "$top" && pwd)

python=${PYTHON:-python3}
mpiexec=${MPIEXEC:-mpiexec}             # of the MPI with which the programs are linked
mpich_bin=${MPICH_BIN:-/usr/bin}        # an MPICH with Fortran: mpicc.mpich, mpifort.mpich, mpiexec.mpich
limit=${LIMIT:-1200}                    # seconds for one run of a test
ranks=${RANKS:-4}                       # where a test runs on one number of ranks only, and says not on how many
library=${PENSTOCK_MPIIO:-$("$python" -m penstock mpiio)} || exit 2
[ -f "$library" ] || { echo "no library at '$library'" >&2; exit 2; }

export MPIR_CVAR_POLLS_BEFORE_YIELD=0 MPIR_CVAR_ENABLE_HEAVY_YIELD=1   # ranks may be more than processors
export OTHERS_RUN=$$                    # marks what this run starts
export TMPDIR=$top/run/tmp

# Ends what a test left running: this shell itself has not the mark in its environment.
sweep() {
    local at
    while read -r at; do
        at=${at#/proc/}
        kill -KILL "${at%/environ}" 2>/dev/null
    done < <(grep -lsz "^OTHERS_RUN=$$\$" /proc/[0-9]*/environ)
}

# once PLACE command...: runs it in a fresh directory; says passed, or why not, and after how long. Inside,
# $ranks_run is mpiexec up to the number of ranks, and $preload what comes before the program.
once() {
    local place=$1 code began=$SECONDS said
    shift
    rm -rf "$place"
    mkdir -p "$place"
    (cd "$place" && { [ -z "${before:-}" ] || eval "$before"; } && exec timeout -k 20 "$limit" "$@") \
        >"$place.log" 2>&1 </dev/null
    code=$?
    sweep
    if [ $code = 124 ] || [ $code = 137 ]; then
        said="no end in $limit s"
    elif [ $code != 0 ]; then
        said="exit code $code"
    elif [ -n "${wanted:-}" ] && ! grep -qE "$wanted" "$place.log"; then
        said="does not say $wanted"
    elif [ -n "${unwanted:-}" ] && grep -qE "$unwanted" "$place.log"; then
        said="says $(grep -m1 -oE "$unwanted" "$place.log")"
    else
        said=passed
    fi
    printf '%s\t%s' "$said" $((SECONDS - began))
}

# try PROGRAM TEST RANKS command...: on the MPI's own files, then on Penstock's. With alone=1 the command starts
# the ranks itself, by $TESTMPIRUN. Files of the pattern $files have to be the same. $own_hints are for PnetCDF, and for
# the MPI's own only.
try() {
    local program=$1 name=$2 ranks=$3 place own ours own_seconds seconds file seen=
    shift 3
    [[ $program/$name-$ranks =~ ${ONLY:-} ]] || return 0
    local -a preload=(env "LD_PRELOAD=$library") start=("$mpiexec" -n "$ranks")
    local -a own_start=("${start[@]}" ${own_hints:+env "PNETCDF_HINTS=$own_hints"})
    place=$top/run/$program/$name-$ranks
    mkdir -p "$place"
    if [ -n "${alone:-}" ]; then
        own=$(TESTMPIRUN="$mpiexec -n NP" TESTOUTDIR=$place/own once "$place/own" "$@")
        ours=$(TESTMPIRUN="$mpiexec -n NP ${preload[*]}" TESTOUTDIR=$place/penstock once "$place/penstock" "$@")
    else
        own=$(once "$place/own" "${own_start[@]}" "$@")
        ours=$(once "$place/penstock" "${start[@]}" "${preload[@]}" "$@")
    fi
    own_seconds=${own#*$'\t'} own=${own%$'\t'*} seconds=${ours#*$'\t'} ours=${ours%$'\t'*}
    if [ -n "${files:-}" ] && [ "$own$ours" = passedpassed ]; then
        while read -r file; do
            seen=1
            cmp -s "$place/own/$file" "$place/penstock/$file" || { ours="file $file differs"; break; }
        done < <(cd "$place/own" && compgen -G "$files")
        [ -n "$seen" ] || ours="no file $files"
    fi
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$program" "$name" "$ranks" "$own" "$ours" "$own_seconds" "$seconds" |
        tee -a "$top/results.tsv"
    if [ "$own$ours" = passedpassed ] && [ -z "${KEEP:-}" ]; then
        rm -rf "$place"
    else
        find "$place" -mindepth 2 -size +1M -delete
    fi
}

missing() {
    printf '%s\t(nothing at %s)\t-\t-\t-\t-\t-\n' "$1" "$2" | tee -a "$top/results.tsv"
}

# quiet NAME command...: its output goes to DIR/build/NAME.log.
quiet() {
    local log=$top/build/$1.log
    shift
    nice -n 10 "$@" >>"$log" 2>&1 || { echo "failed: $*; see $log" >&2; return 1; }
}

# source_of NAME PACKAGE: DIR/NAME, or else the source of Debian's package.
source_of() {
    [ -d "$top/$1" ] || (
        mkdir -p "$top/debian/$1" && cd "$top/debian/$1" && quiet "$1" apt-get source --download-only "$2" &&
            mkdir "$top/$1" && tar xf ./*.orig.tar.* --strip-components=1 -C "$top/$1"
    )
}

# ---- mpi4py: DIR/mpi4py is the source of the installed version -------------------------------------------------

mpi4py_tests() {
    local at=$top/mpi4py version n
    version=$("$python" -c 'import mpi4py; print(mpi4py.__version__)') || { missing mpi4py "$python"; return; }
    if [ ! -d "$at" ]; then
        quiet mpi4py "$python" -m pip download --no-deps --no-binary :all: -d "$top" "mpi4py==$version" || return
        mkdir "$at" && tar xf "$top/mpi4py-$version.tar.gz" --strip-components=1 -C "$at" || return
    fi
    for n in 1 2 3 4; do
        wanted='^OK' try mpi4py test_file "$n" "$python" "$at/test/main.py" -q -i test_file
        wanted='^OK' try mpi4py test_io "$n" "$python" "$at/test/main.py" -q -i test_io
    done
}

# ---- IOR: DIR/ior/bin/ior ----------------------------------------------------------------------------------------

ior_tests() {
    local at=$top/ior/bin/ior n name options
    [ -x "$at" ] || { missing ior "$at"; return; }
    printf 'IOR_HINT__MPI__%s\n' 'cb_buffer_size = 65536' 'romio_cb_write = enable' >"$top/run/hints"
    for n in 1 2 4 8; do
        while read -r name options; do
            # shellcheck disable=SC2086
            files="$([ "$name" = directory-per-rank ] && echo 'd[0-9]*/')*ata*" unwanted='WARNING: .*rror.*|ncorrect.*|ERROR.*|rrors found.*' try ior "$name" "$n" "$at" \
                -a MPIIO -o data -G 7 -k -w -r -W -R $options
        done <<END
independent -b 1m -t 64k -s 4
collective -c -b 1m -t 64k -s 4
interleaved -c -b 47008 -t 47008 -s 100
interleaved-independent -b 47008 -t 47008 -s 100
interleaved-parts -c -b 470080 -t 47008 -s 10
interleaved-small -c -b 8 -t 8 -s 500
interleaved-hints -c -b 47008 -t 47008 -s 100 --mpiio.hintsFileName=$top/run/hints --mpiio.showHints
interleaved-preallocated -c -b 47008 -t 47008 -s 100 --mpiio.preallocate
preallocated --mpiio.preallocate -b 1m -t 256k
view --mpiio.useFileView -b 94016 -t 47008
view-collective --mpiio.useFileView -c -b 94016 -t 47008
view-segments --mpiio.useFileView -c -b 47008 -t 47008 -s 50
view-strided --mpiio.useFileView --mpiio.useStridedDatatype -b 94016 -t 47008
view-strided-collective --mpiio.useFileView --mpiio.useStridedDatatype -c -b 94016 -t 47008
file-per-rank -F -b 470080 -t 47008
file-per-rank-collective -F -c -b 470080 -t 47008
file-per-rank-view -F -c --mpiio.useFileView -b 470080 -t 47008
directory-per-rank -F -u -b 470080 -t 47008
synced -e -c -b 47008 -t 47008 -s 20
synced-each -Y -b 47008 -t 47008 -s 5
shuffled -z --random-offset-seed=5 -b 470080 -t 47008 -s 2
reordered -C -c -b 47008 -t 47008 -s 50
reordered-random -Z -b 47008 -t 47008 -s 50
three-times -i 3 -m -c -b 47008 -t 47008 -s 20
existing -E -c -b 47008 -t 47008 -s 20 -i 2
barriers -g -c -b 47008 -t 47008 -s 20
timestamps -l timestamp -c -b 47008 -t 47008 -s 20
incompressible -l incompressible -c -b 47008 -t 47008 -s 20
large -c -b 16m -t 16m -s 2
END
    done
}

# ---- PnetCDF, 1.15 or later: DIR/pnetcdf is its build directory, with its tests built ------------------------------

pnetcdf_tests() {
    local at=$top/pnetcdf directory source name
    [ -d "$at/test/testcases" ] || { missing pnetcdf "$at/test"; return; }
    for directory in testcases nonblocking cdf_format header C; do
        source=$(cd "$at/test/$directory" && cd "$(sed -n 's/^srcdir = //p' Makefile)" && pwd)
        for name in $(cd "$at/test/$directory" && find . -maxdepth 1 -type f -executable ! -name '*.*[a-z]' -printf '%f\n' | sort); do
            [ "$name" != tst_pthread ] || continue      # an ncmpi_* in threads; refused where MPI has no THREAD_MULTIPLE
            pnetcdf_one "$directory" "$name" "$source/parallel_run.sh" "$ranks"
        done
    done
    source=$(cd "$at/test/nc_test" && cd "$(sed -n 's/^srcdir = //p' Makefile)" && pwd)
    for name in nc_test t_nc tst_nofill tst_misc tst_norm tst_small tst_names tst_atts tst_atts3; do
        [ -x "$at/test/nc_test/$name" ] && pnetcdf_one nc_test "$name" "$source/wrap_runs.sh" 1
    done
}

# pnetcdf_one DIRECTORY TEST SCRIPT RANKS: by PnetCDF's own script, which takes each driver in turn.
pnetcdf_one() {
    local argument=$4
    [ "$4" != 1 ] || argument=./$2
    alone=1 unwanted='FAIL.*' try pnetcdf "$1/$2" "$4" bash -c "
        export check_PROGRAMS=$2 SED=sed srcdir='${3%/*}' top_builddir=../.. ENABLE_GIO=0
        export TESTSEQRUN=\${TESTMPIRUN/NP/1}
        cd '$top/pnetcdf/test/$1' && exec bash '$3' $argument"
}

# ---- E3SM-IO: DIR/e3sm-io/bin/e3sm_io, and its data sets in DIR/e3sm-io/datasets -----------------------------------

e3sm_tests() {
    local at=$top/e3sm-io n case map kind
    local -x PNETCDF_HINTS='nc_driver=mpiio'            # PnetCDF 1.15 has a driver of its own, unless told otherwise
    [ -x "$at/bin/e3sm_io" ] || { missing e3sm-io "$at/bin/e3sm_io"; return; }
    for n in 2 4 8 16; do
        for case in f g i; do
            [ "$n-$case" != 16-i ] || continue          # 0.5 GB by 16 ranks takes long
            map=$at/datasets/map_${case}_case_16p.nc
            for kind in canonical blob; do
                # ROMIO's collective writes leave in gaps what was in its buffer; without them the files are the same.
                own_hints='nc_driver=mpiio;romio_cb_write=disable;romio_ds_write=disable' \
                    files='out*' unwanted='rror.*' try e3sm-io "$case-$kind-write" "$n" \
                    "$at/bin/e3sm_io" -k -a pnetcdf -x "$kind" -r 2 -y 2 -o out.nc "$map"
            done
            # Read what was written, by one and the same MPI.
            unwanted='rror.*' alone=1 try e3sm-io "$case-write-read" "$n" bash -c "
                run=\${TESTMPIRUN/NP/$n}
                \$run '$at/bin/e3sm_io' -k -a pnetcdf -x canonical -r 2 -y 2 -o out.nc '$map' &&
                    \$run '$at/bin/e3sm_io' -k -a pnetcdf -x canonical -r 2 -y 2 -i out.nc '$map'"
        done
    done
}

# ---- HDF5: DIR/hdf5 is its source; DIR/build/hdf5 is where it is built -----------------------------------------------

hdf5_tests() {
    local at=$top/build/hdf5 name n
    if [ ! -x "$at/testpar/testphdf5" ]; then
        source_of hdf5 hdf5 || { missing hdf5 "$top/hdf5"; return; }
        mkdir -p "$at"
        (
            cd "$at" &&
                quiet hdf5 "$top/hdf5/configure" --enable-parallel --disable-fortran --disable-cxx --disable-hl \
                    --disable-shared --enable-build-mode=production CC="${MPICC:-mpicc}" &&
                quiet hdf5 make -j2 -C src && quiet hdf5 make -j2 -C test libh5test.la &&
                quiet hdf5 make -j2 -C testpar testphdf5 t_mpi t_bigio t_cache t_cache_image t_pread t_pshutdown \
                    t_prestart t_init_term t_pmulti_dset t_select_io_dset t_shapesame t_filters_parallel t_2Gio \
                    t_vfd t_pflush1 t_pflush2
        ) || { missing hdf5 "$at/testpar"; return; }
    fi
    hdf5_each hdf5 "$at/testpar"
}

# HDF5's parallel examples in C and Fortran, with the HDF5 that Debian builds with its MPICH.
hdf5_examples() {
    local at=$top/build/hdf5-debian mpiexec=$mpich_bin/mpiexec.mpich compiler source name
    if [ ! -x "$mpich_bin/h5pcc.mpich" ] || ! source_of hdf5 hdf5; then
        missing hdf5-debian "$mpich_bin/h5pcc.mpich"
        return
    fi
    mkdir -p "$at"
    for source in "$top"/hdf5/HDF5Examples/C/H5PAR/*.c "$top"/hdf5/HDF5Examples/FORTRAN/H5PAR/*.F90; do
        name=$(basename "${source%.*}") compiler=h5pcc.mpich
        case $name in *filtered* | *subfiling) continue ;; esac    # these want a newer HDF5 than some Debian's
        [ "${source##*.}" = c ] || compiler=h5pfc.mpich
        (cd "$at" && quiet hdf5-debian "$mpich_bin/$compiler" -o "$name" "$source") && try hdf5-debian "$name" 4 "$at/$name"
    done
}

# hdf5_each PROGRAM DIRECTORY: HDF5's parallel tests there, on 1 to 8 ranks.
hdf5_each() {
    local program=$1 at=$2 name n
    export HDF5_PARAPREFIX=. HDF5TestExpress=${HDF5TestExpress:-3}
    for name in t_mpi t_pread t_init_term t_pmulti_dset t_select_io_dset t_filters_parallel \
        t_vfd t_bigio t_2Gio testphdf5 t_shapesame t_cache t_cache_image; do
        [ -x "$at/$name" ] || continue
        for n in 1 2 4 6 8; do
            case $name-$n in
            testphdf5-[124] | t_mpi-[28] | t_pmulti_dset-2 | t_select_io_dset-8 | *-4) ;;
            *) continue ;;
            esac
            unwanted='\*FAILED\*.*|FAILED$' try "$program" "$name" "$n" "$at/$name"
        done
    done
    # The second of these two opens what the first has left.
    [ -x "$at/t_prestart" ] && alone=1 try "$program" t_prestart 4 bash -c "
        run=\${TESTMPIRUN/NP/4}
        \$run '$at/t_pshutdown' && \$run '$at/t_prestart'"
    # The first of these two ends without MPI_Finalize, on purpose; the second reads what it has flushed.
    [ -x "$at/t_pflush1" ] && alone=1 wanted='PASSED' try "$program" t_pflush 4 bash -c "
        run=\${TESTMPIRUN/NP/4}
        \$run '$at/t_pflush1'
        \$run '$at/t_pflush2'"
}

# ---- netCDF-4: DIR/netcdf is its build directory, with HDF5 and the tests of parallel I/O built ---------------------

netcdf_tests() {
    local at=$top/netcdf/nc_test4 name n
    [ -d "$at" ] || { missing netcdf "$at"; return; }
    while read -r name n; do
        [ -x "$at/$name" ] || { missing netcdf "$at/$name"; continue; }
        unwanted='Sorry.*|FAIL.*' try netcdf "$name" "$n" "$at/$name"
    done <<'END'
tst_mode 1
tst_mpi_parallel 4
tst_parallel 4
tst_parallel3 4
tst_parallel3 16
tst_parallel4 1
tst_parallel4 2
tst_parallel4 4
tst_parallel4 8
tst_parallel5 4
tst_parallel6 4
tst_nc4perf 4
tst_simplerw_coll_r 1
tst_simplerw_coll_r 2
tst_simplerw_coll_r 4
tst_parallel_zlib 4
tst_parallel_compress 1
tst_parallel_compress 4
tst_quantize_par 4
END
}

# ---- MPICH's own tests: DIR/mpich is the source of the MPICH in $mpich_bin -------------------------------------------

mpich_tests() {
    local at=$top/build/mpich compiler=$mpich_bin/mpifort.mpich directory name n rest mpiexec=$mpich_bin/mpiexec.mpich
    if [ ! -e "$at/built" ]; then
        source_of mpich mpich || { missing mpich "$top/mpich"; return; }
        mkdir -p "$at"
        (
            cd "$at" || exit
            [ -e Makefile ] || quiet mpich "$top/mpich/test/mpi/configure" --enable-fortran=all MPICC="$mpich_bin/mpicc.mpich" \
                CC="$mpich_bin/mpicc.mpich" CXX="$mpich_bin/mpicxx.mpich" MPICXX="$mpich_bin/mpicxx.mpich" \
                F77="$compiler" FC="$compiler" MPIF77="$compiler" MPIFC="$compiler" MPIEXEC="$mpiexec" || exit
            for directory in dtpools util io errors/io f77/io f90/io; do
                quiet mpich make -k -j2 -C "$directory"
            done
            # Its configure leaves out `mpi_f08` where it does not build MPICH, too; the sources are made all the same.
            make -k -C f08/io >>"$top/build/mpich.log" 2>&1
            cd f08/io && quiet mpich "$compiler" -c "$top/mpich/test/mpi/util/mtest_f08.f90" || exit
            while read -r name n rest; do
                for rest in "$name.f90" "$top/mpich/test/mpi/f08/io/$name.f90"; do
                    [ ! -e "$rest" ] || quiet mpich "$compiler" -o "$name" "$rest" mtest_f08.o
                done
            done <testlist
            quiet mpich "$mpich_bin/mpicc.mpich" -c "$top/mpich/test/mpi/f08/io/c2f902cio.c" -I../../include \
                -I"$top/mpich/test/mpi/include" &&
                quiet mpich "$compiler" -o c2f2ciof90 "$top/mpich/test/mpi/f08/io/c2f2ciof90.f90" mtest_f08.o c2f902cio.o
            touch "$at/built"
        ) || { missing mpich "$at"; return; }
    fi
    for directory in io errors/io f77/io f90/io f08/io; do
        while read -r name n rest; do
            [ -x "$at/$directory/$name" ] || { missing mpich "$at/$directory/$name"; continue; }
            rest=$(sed -n 's/.*arg=\([^ ]*\).*/\1/p' <<<"$rest")
            wanted='^ *No Errors' try mpich "$directory/$name" "$n" "$at/$directory/$name" ${rest:+"$rest"}
        done < <(grep -v '^#' "$([ -e "$at/$directory/testlist" ] && echo "$at" || echo "$top/mpich/test/mpi")/$directory/testlist")
    done
}

# ---- Fortran: a program of this script, by `use mpi` and by `use mpi_f08` ----------------------------------------------

fortran_tests() {
    local compiler=$mpich_bin/mpifort.mpich mpiexec=$mpich_bin/mpiexec.mpich module n at=$top/build/fortran
    [ -x "$compiler" ] || { missing fortran "$compiler"; return; }
    mkdir -p "$at"
    for module in mpi mpi_f08; do
        fortran_program $module >"$at/$module.f90"
        quiet fortran "$compiler" -J "$at" -o "$at/$module" "$at/$module.f90" || { missing fortran "$at/$module"; continue; }
        for n in 1 2 3 4 6 8; do
            files=mesh wanted='passed' try fortran "$module" "$n" "$at/$module"
        done
    done
}

# A mesh of 60 x 44 in blocks, column by column in the file: written and read back in one collective each.
fortran_program() {
    local file='integer' type='integer' info='integer' status='integer :: status(MPI_STATUS_SIZE)'
    if [ "$1" = mpi_f08 ]; then
        file='type(MPI_File)' type='type(MPI_Datatype)' info='type(MPI_Info)' status='type(MPI_Status) :: status'
    fi
    cat <<END
program mesh
    use $1
    implicit none
    integer, parameter :: whole(2) = [60, 44]
    integer :: ranks, rank, parts(2), place(2), first(2), last(2), part(2), i, j, n, code
    integer(MPI_OFFSET_KIND) :: bytes
    real(8), allocatable :: mine(:, :), back(:, :)
    $file :: file
    $type :: filetype
    $info :: hints
    $status
    call MPI_Init(code)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
    parts = 0
    call MPI_Dims_create(ranks, 2, parts, code)
    place = [mod(rank, parts(1)), rank / parts(1)]
    first = place * whole / parts
    last = (place + 1) * whole / parts
    part = last - first
    allocate (mine(part(1), part(2)), back(part(1), part(2)))
    do j = 1, part(2)
        do i = 1, part(1)
            mine(i, j) = (first(2) + j) * 1000 + first(1) + i
        end do
    end do
    call MPI_Type_create_subarray(2, whole, part, first, MPI_ORDER_FORTRAN, MPI_DOUBLE_PRECISION, filetype, code)
    call MPI_Type_commit(filetype, code)
    call MPI_Info_create(hints, code)
    call MPI_Info_set(hints, 'cb_nodes', '2', code)
    call MPI_File_open(MPI_COMM_WORLD, 'mesh', MPI_MODE_CREATE + MPI_MODE_RDWR, hints, file, code)
    if (code /= MPI_SUCCESS) call wrong('open')
    call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_DOUBLE_PRECISION, filetype, 'native', hints, code)
    if (code /= MPI_SUCCESS) call wrong('set_view')
    call MPI_File_write_all(file, mine, size(mine), MPI_DOUBLE_PRECISION, status, code)
    if (code /= MPI_SUCCESS) call wrong('write_all')
    call MPI_Get_count(status, MPI_DOUBLE_PRECISION, n, code)
    if (n /= size(mine)) call wrong('count of write_all')
    call MPI_File_seek(file, 0_MPI_OFFSET_KIND, MPI_SEEK_SET, code)
    back = 0
    call MPI_File_read_all(file, back, size(back), MPI_DOUBLE_PRECISION, status, code)
    if (code /= MPI_SUCCESS .or. any(back /= mine)) call wrong('read_all')
    back = 0
    call MPI_File_read_at_all(file, 0_MPI_OFFSET_KIND, back, size(back), MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, code)
    if (code /= MPI_SUCCESS .or. any(back /= mine)) call wrong('read_at_all')
    call MPI_File_get_size(file, bytes, code)
    if (bytes /= 8_MPI_OFFSET_KIND * product(whole)) call wrong('get_size')
    call MPI_File_close(file, code)
    ! Files report errors by their code, unless told otherwise.
    call MPI_File_open(MPI_COMM_SELF, 'nothing', MPI_MODE_RDONLY, MPI_INFO_NULL, file, code)
    if (code == MPI_SUCCESS) call wrong('open of nothing')
    call MPI_Type_free(filetype, code)
    call MPI_Info_free(hints, code)
    call MPI_Barrier(MPI_COMM_WORLD, code)
    if (rank == 0) print *, 'passed'
    call MPI_Finalize(code)
contains
    subroutine wrong(what)
        character(*), intent(in) :: what
        print *, 'wrong: ', what
        call MPI_Abort(MPI_COMM_WORLD, 1, code)
    end subroutine
end program
END
}

rm -f "$top/results.tsv"
for one in "$@"; do
    case $one in
    e3sm-io) e3sm_tests ;;
    hdf5) hdf5_tests; hdf5_examples ;;
    mpi4py | ior | pnetcdf | netcdf | mpich | fortran) "${one}_tests" ;;
    *) echo "no such program: $one; there are ${all[*]}" >&2; exit 2 ;;
    esac
done
sweep

# The table, and the code.
awk -F '\t' '
    !($1 in tests) { order[++programs] = $1; tests[$1] = own[$1] = ours[$1] = 0 }
    $3 != "-" { tests[$1]++; own[$1] += $4 == "passed"; ours[$1] += $5 == "passed" }
    $4 == "passed" && $5 != "passed" { bad = bad "\n" $1 " " $2 " on " $3 " ranks: " $5 }
    END {
        printf "\n%-12s %6s %20s %22s\n", "program", "tests", "passed on the MPI", "passed on Penstock"
        for (i = 1; i <= programs; i++) printf "%-12s %6d %20d %22d\n", order[i], tests[order[i]], own[order[i]], ours[order[i]]
        if (bad != "") print "\nfailed on Penstock only:" bad
        exit bad != ""
    }' "$top/results.tsv"
