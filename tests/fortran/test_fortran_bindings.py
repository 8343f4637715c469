"""The module and the header agree: functions, structures, codes."""

from __future__ import annotations

import re
import subprocess

import pytest
from fortran_programs import ROOT, checked, run

SOURCES = ROOT / "crates/c/fortran"


@pytest.fixture(scope="module")
def header(tree):
    text = (tree.include / "penstock.h").read_text()
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


@pytest.fixture(scope="module")
def bindings():
    return re.sub(r" &\n\s+", " ", (SOURCES / "penstock_c.f90").read_text())


def structures(header: str) -> dict[str, list[str]]:
    """The structures of the header, with the names of their members."""
    found = re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", header, flags=re.S)
    return {name: re.findall(r"(\w+);", body) for body, name in found}


def types(bindings: str) -> dict[str, list[str]]:
    """The bind(C) types of the module, with the names of their components."""
    found = re.findall(r"type, bind\(C\) :: (\w+)\n(.*?)  end type", bindings, flags=re.S)
    return {name: re.findall(r"^    \S.* :: (\w+)", body, flags=re.M) for name, body in found}


def fortran_name(structure: str, known: dict[str, list[str]]) -> str:
    """The type that stands for a structure."""
    return structure if structure in known else structure.replace("penstock_", "c_", 1)


def test_every_function_of_the_header_is_bound(header, bindings):
    functions = set(re.findall(r"\b(penstock_\w+)\(", header))
    bound = re.findall(r'bind\(C, name="(\w+)"\)', bindings)
    assert len(bound) == len(set(bound))
    assert set(bound) == functions


def test_every_binding_is_used_by_the_module(bindings):
    others = [path for path in SOURCES.glob("penstock_*.f90") if path.name != "penstock_c.f90"]
    code = "".join(path.read_text() for path in others)
    names = re.findall(r"\b(?:function|subroutine) (c_\w+)", bindings)
    # What only C needs: the module reaches these through others.
    spare = {"c_write", "c_read"}
    assert {name for name in names if not re.search(rf"\b{name}\(", code)} == spare


def test_arguments_agree(header, bindings):
    """As many arguments, and each of the same kind."""
    protos = dict(re.findall(r"\b(penstock_\w+)\(([^)]*)\)", " ".join(header.split())))
    kinds = {
        "int": "integer(c_int), value", "size_t": "integer(c_size_t), value",
        "int64_t": "integer(c_int64_t), value", "uint64_t": "integer(c_int64_t), value",
        "uint32_t": "integer(c_int32_t), value", "double": "real(c_double), value",
    }  # fmt: skip
    pattern = r'(\w+)\(([^()]*)\) bind\(C, name="(\w+)"\)(.*?)end (?:function|subroutine)'
    for _, arguments, name, body in re.findall(pattern, bindings, flags=re.S):
        declared = {}
        for line in body.splitlines():
            if " :: " in line:
                kind, names = line.strip().split(" :: ")
                declared |= dict.fromkeys(re.findall(r"\w+", names.replace("(*)", "")), kind)
        ours = [declared[argument.strip()] for argument in arguments.split(",") if argument.strip()]
        theirs = [text.strip() for text in protos[name].split(",") if text.strip() != "void"]
        assert len(ours) == len(theirs), name
        for kind, wanted in zip(ours, theirs, strict=True):
            scalar = wanted.rsplit(" ", 1)[0]
            is_value = "value" in kind and not kind.startswith("type(c_ptr)")
            assert is_value == (scalar in kinds and "*" not in wanted), (name, wanted, kind)
            if is_value:
                assert kind == kinds[scalar], (name, wanted, kind)
            if wanted.startswith("const") and "type(c_ptr), value" not in kind:
                assert "intent(in)" in kind, (name, wanted, kind)


def test_structures_agree(build, header, bindings, tmp_path):
    known = types(bindings)
    found = structures(header)
    assert {fortran_name(name, known) for name in found} == set(known)
    c_lines, f_lines, f_variables = [], [], []
    for name, members in found.items():
        ours = fortran_name(name, known)
        assert known[ours] == members, name
        c_lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        f_variables.append(f"  type({ours}), target :: of_{name}")
        f_lines.append(f'  print "(a, 1x, i0)", "{name}", c_sizeof(of_{name})')
        for member in members:
            c_lines.append(f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));')
            f_lines.append(
                f'  print "(a, 1x, i0)", "{name}.{member}", &\n'
                f"      address(c_loc(of_{name}%{member})) - address(c_loc(of_{name}))"
            )
    c_source = tmp_path / "layouts.c"
    c_source.write_text(
        "#include <penstock.h>\n#include <stdio.h>\nint main(void)\n{\n"
        + "\n".join(c_lines)
        + "\nreturn 0;\n}\n"
    )
    checked(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{build.tree.include}", str(c_source),
         "-o", str(tmp_path / "layouts")]
    )  # fmt: skip
    program = build.text(
        "layouts",
        "program layouts\n  use penstock_c\n  implicit none\n"
        + "\n".join([*f_variables, *f_lines])
        + "\ncontains\n"
        "  integer(c_intptr_t) function address(pointer)\n"
        "    type(c_ptr), intent(in) :: pointer\n\n"
        "    address = transfer(pointer, address)\n"
        "  end function\n"
        "end program\n",
        mpi=None,
    )
    c_said = subprocess.run([tmp_path / "layouts"], capture_output=True, text=True, check=True)
    assert run(program) == c_said.stdout.splitlines()


def test_defaults_and_codes_agree(build, header, bindings, tmp_path):
    """What the macros ..._INIT set, and the constants, are what the module sets."""
    inits = {
        "penstock_session_options": "PENSTOCK_SESSION_OPTIONS_INIT",
        "penstock_copy_options": "PENSTOCK_COPY_OPTIONS_INIT",
        "penstock_volume_options": "PENSTOCK_VOLUME_OPTIONS_INIT",
        "penstock_fs_options": "PENSTOCK_FS_OPTIONS_INIT",
        "penstock_transfer_options": "PENSTOCK_TRANSFER_OPTIONS_INIT",
        "penstock_view": "PENSTOCK_WHOLE_FILE",
    }
    known = types(bindings)
    c_lines, f_lines, f_variables = [], [], []
    for name, macro in inits.items():
        c_lines.append(f"{{ {name} value = {macro}; dump(&value, sizeof value); }}")
        ours = fortran_name(name, known)
        f_variables.append(f"  type({ours}), target :: of_{name}")
        if name != "penstock_view":
            f_lines.append(f"  of_{name}%size = c_sizeof(of_{name})")
        f_lines.append(f"  call dump(c_loc(of_{name}), c_sizeof(of_{name}))")
    # In Fortran, where names have no case, these would be types.
    kinds = ["PENSTOCK_FILE", "PENSTOCK_DIRECTORY", "PENSTOCK_SYMLINK"]
    spelled = {kind: f"{kind}_KIND" for kind in kinds}
    constants = re.findall(r"\b(PENSTOCK_[A-Z_]+) = -?\d", header)
    assert len(constants) > 20
    for name in constants:
        c_lines.append(f'printf("{name} %d\\n", {name});')
        f_lines.append(f'  print "(a, i0)", "{name} ", {spelled.get(name, name)}')
    c_lines.append('printf("%lld\\n", (long long)(int64_t)PENSTOCK_ROWS);')
    f_lines.append('  print "(i0)", PENSTOCK_ROWS')
    c_source = tmp_path / "defaults.c"
    # Compilers fill the padding of variables that have initial values with zeros.
    c_source.write_text(
        "#include <penstock.h>\n#include <stdio.h>\n#include <string.h>\n"
        "static void dump(const void *value, size_t bytes)\n{\n"
        "    for (size_t at = 0; at + 4 <= bytes; at += 4) {\n"
        "        int word;\n"
        "        memcpy(&word, (const char *)value + at, 4);\n"
        '        printf("%d\\n", word);\n    }\n}\n'
        "int main(void)\n{\n" + "\n".join(c_lines) + "\nreturn 0;\n}\n"
    )
    checked(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{build.tree.include}", str(c_source),
         "-o", str(tmp_path / "defaults")]
    )  # fmt: skip
    program = build.text(
        "defaults",
        "program defaults\n  use penstock_c\n  implicit none\n"
        + "\n".join([*f_variables, *f_lines])
        + "\ncontains\n"
        "  subroutine dump(pointer, bytes)\n"
        "    type(c_ptr), intent(in) :: pointer\n"
        "    integer(c_size_t), intent(in) :: bytes\n"
        "    integer(c_int32_t), pointer :: words(:)\n\n"
        "    call c_f_pointer(pointer, words, [bytes / 4])\n"
        '    print "(i0)", words\n'
        "  end subroutine\n"
        "end program\n",
        mpi=None,
    )
    c_said = subprocess.run([tmp_path / "defaults"], capture_output=True, text=True, check=True)
    assert run(program) == c_said.stdout.splitlines()
