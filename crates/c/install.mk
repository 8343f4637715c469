# Installs the C and Fortran faces: `make install PREFIX=... [DESTDIR=...] [LIBDIR=...]`.
#
#     PREFIX/include/penstock.h
#     LIBDIR/libpenstock.so.0.1.0               and links: libpenstock.so.0, libpenstock.so
#     LIBDIR/penstock/libpenstock_mpiio.so      to be preloaded: see docs/mpi-io.md
#     LIBDIR/pkgconfig/penstock.pc
#     LIBDIR/cmake/penstock/penstock-config.cmake
#     PREFIX/share/man/man3, man7
#     PREFIX/share/penstock/fortran             the sources of the Fortran module
#
# and where FC is gfortran:
#
#     LIBDIR/libpenstock_fortran.a
#     LIBDIR/fortran/gfortran-mod-15/*.mod             15: what gfortran calls its format of modules
#     LIBDIR/pkgconfig/penstock-fortran.pc
#
# LIBDIR is PREFIX/lib/x86_64-linux-gnu or the like where the C compiler knows such a directory, as
# on Debian, and PREFIX/lib elsewhere. Files are found from one another, so that CMake's part may be
# moved; pkg-config's has PREFIX in it.

PREFIX  := /usr/local
DESTDIR :=
LIBDIR  := $(PREFIX)/lib$(addprefix /,$(shell cc -print-multiarch 2>/dev/null))
ifeq ($(origin FC),default)
FC      := gfortran
endif
FFLAGS  := -O2 -g

PROFILE   := release
C_BUILT   := $(TARGET)/$(call built-in,$(PROFILE))
C_VERSION := $(shell sed -n 's/^version = "\([0-9.]*\)"/\1/p' Cargo.toml)
C_MAJOR   := $(word 1,$(subst ., ,$(C_VERSION)))
C_MINOR   := $(word 2,$(subst ., ,$(C_VERSION)))
C_PAGES   := $(wildcard crates/c/man/*.3 crates/c/man/*.7)
C_FORTRAN := $(wildcard crates/c/fortran/*.f90 crates/c/fortran/*.c crates/c/fortran/*.h)
C_WORK    := out/install

# $(call dest,path) is where a file goes now; $(call fill,template,path) fills in a template.
dest = $(DESTDIR)$(1)
c-word = $(subst |,\|,$(subst &,\&,$(1)))
fill = sed -e 's|@PREFIX@|$(call c-word,$(PREFIX))|' -e 's|@LIBDIR@|$(call c-word,$(LIBDIR))|' \
    -e 's|@INCLUDEDIR@|$(call c-word,$(PREFIX))/include|' -e 's|@VERSION@|$(C_VERSION)|g' \
    -e 's|@MAJOR@|$(C_MAJOR)|g' -e 's|@MINOR@|$(C_MINOR)|g' -e "s|@TO_PREFIX@|$$up|" \
    -e "s|@FMODDIR@|$$modules|" -e "s|@POINTER_BYTES@|$$(( $$(getconf LONG_BIT) / 8 ))|" $(1) >$(2)
# The functions that a page is about: each has a link to it.
c-names = sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z0-9_]*\).*/\1/p' $$page

.PHONY: install uninstall libraries fortran-module

# Who installs as another user, for whom there is no Rust, builds them first: `make libraries`. The HDF5
# library is installed among what cargo builds: DESTDIR is not for it.
libraries: # libpenstock and libpenstock_mpiio
	@if ! command -v cargo >/dev/null && [ -f $(C_BUILT)/libpenstock.so ]; then \
	    echo "== no cargo: what has been built before is installed"; \
	else \
	    $(MAKE) --no-print-directory rust && \
	    echo "== build: libpenstock (profile $(PROFILE))" && \
	    env -u DESTDIR -u MAKEFLAGS cargo build --profile $(PROFILE) -p penstock-mpiio -p penstock-c; \
	fi

LIBRARIES := libraries
install: $(LIBRARIES) fortran-module ## the C and Fortran faces into PREFIX (/usr/local; also DESTDIR, LIBDIR)
	@echo "== install: into $(call dest,$(PREFIX))"
	@install -d "$(call dest,$(PREFIX))/include" "$(call dest,$(LIBDIR))/penstock" \
	    "$(call dest,$(LIBDIR))/pkgconfig" "$(call dest,$(LIBDIR))/cmake/penstock" \
	    "$(call dest,$(PREFIX))/share/man/man3" "$(call dest,$(PREFIX))/share/man/man7" \
	    "$(call dest,$(PREFIX))/share/penstock/fortran"
	@install -m 644 crates/c/include/penstock.h "$(call dest,$(PREFIX))/include/"
	@install -m 644 $(C_BUILT)/libpenstock.so "$(call dest,$(LIBDIR))/libpenstock.so.$(C_VERSION)"
	@ln -sf libpenstock.so.$(C_VERSION) "$(call dest,$(LIBDIR))/libpenstock.so.$(C_MAJOR)"
	@ln -sf libpenstock.so.$(C_MAJOR) "$(call dest,$(LIBDIR))/libpenstock.so"
	@install -m 644 $(C_BUILT)/libpenstock_mpiio.so "$(call dest,$(LIBDIR))/penstock/"
	@up=$$(realpath -m --relative-to="$(LIBDIR)/cmake/penstock" "$(PREFIX)"); \
	$(call fill,crates/c/penstock.pc.in,"$(call dest,$(LIBDIR))/pkgconfig/penstock.pc") && \
	for file in penstock-config penstock-config-version; do \
	    $(call fill,crates/c/cmake/$$file.cmake.in,"$(call dest,$(LIBDIR))/cmake/penstock/$$file.cmake") \
	        || exit 1; \
	done
	@for page in $(C_PAGES); do \
	    file=$${page##*/}; section=$${page##*.}; \
	    directory="$(call dest,$(PREFIX))/share/man/man$$section"; \
	    install -m 644 $$page "$$directory/" || exit 1; \
	    for name in $$($(c-names)); do \
	        [ $$name.$$section = $$file ] || ln -sf $$file "$$directory/$$name.$$section"; \
	    done; \
	done
	@install -m 644 $(C_FORTRAN) "$(call dest,$(PREFIX))/share/penstock/fortran/"
	@if [ -f $(C_WORK)/format ]; then \
	    modules="$(LIBDIR)/fortran/gfortran-mod-$$(cat $(C_WORK)/format)"; \
	    install -d "$(DESTDIR)$$modules" && \
	    install -m 644 $(C_WORK)/*.mod "$(DESTDIR)$$modules/" && \
	    install -m 644 $(C_WORK)/libpenstock_fortran.a "$(call dest,$(LIBDIR))/" && \
	    $(call fill,crates/c/penstock-fortran.pc.in,"$(call dest,$(LIBDIR))/pkgconfig/penstock-fortran.pc"); \
	fi

fortran-module: # for gfortran, where it is
	@rm -rf $(C_WORK); mkdir -p $(C_WORK)
	@if command -v $(FC) >/dev/null && $(FC) --version | grep -q "GNU Fortran"; then \
	    echo "== build: the Fortran module"; \
	    $(MAKE) --no-print-directory -C crates/c/fortran FC="$(FC)" FFLAGS="$(FFLAGS)" \
	        OUT="$(CURDIR)/$(C_WORK)" INCLUDE="$(CURDIR)/crates/c/include" && \
	    gzip -dc $(C_WORK)/penstock.mod | sed -n "1s/.*version '\([0-9]*\)'.*/\1/p" >$(C_WORK)/format; \
	else echo "== no gfortran: the Fortran module is installed as source"; fi

uninstall: ## what `make install` has put into PREFIX
	@rm -f "$(call dest,$(PREFIX))/include/penstock.h" \
	    "$(call dest,$(LIBDIR))/libpenstock.so"* "$(call dest,$(LIBDIR))/libpenstock_fortran.a" \
	    "$(call dest,$(LIBDIR))/penstock/libpenstock_mpiio.so" \
	    "$(call dest,$(LIBDIR))/pkgconfig/penstock.pc" \
	    "$(call dest,$(LIBDIR))/pkgconfig/penstock-fortran.pc" \
	    "$(call dest,$(LIBDIR))/fortran/gfortran-mod-"*/penstock*.mod
	@rm -rf "$(call dest,$(LIBDIR))/cmake/penstock" "$(call dest,$(PREFIX))/share/penstock"
	@for page in $(C_PAGES); do \
	    file=$${page##*/}; section=$${page##*.}; \
	    directory="$(call dest,$(PREFIX))/share/man/man$$section"; \
	    rm -f "$$directory/$$file"; \
	    for name in $$($(c-names)); do rm -f "$$directory/$$name.$$section"; done; \
	done
	@find "$(call dest,$(LIBDIR))/penstock" "$(call dest,$(LIBDIR))/fortran" -depth -type d -empty -delete \
	    2>/dev/null || true
