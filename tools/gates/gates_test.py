"""The gates can fail: each is run on a small made-up project that breaks its rule, and on one that does not."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

GATES = pathlib.Path(__file__).resolve().parent


class ProjectCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "tools/gates").mkdir(parents=True)
        self.write("tools/gates/layers.txt", "base:\nengine: base\ncli: base engine\n")
        self.write("tools/gates/external_headers.txt", "boost/asio: cli\n")
        shutil.copy(GATES / "forbidden.toml", self.root / "tools/gates")
        self.write("src/base/status.h", "#pragma once\n")
        self.write("src/base/CMakeLists.txt", "add_module(base)\n")
        self.write("src/engine/engine.cc", '#include "base/status.h"\nint step() { return 1; }\n')
        self.write("src/engine/CMakeLists.txt", "add_module(engine DEPS base LIBS x::y)\n")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run_gate(self, name, *arguments):
        done = subprocess.run(
            [sys.executable, str(GATES / f"{name}.py"), "--root", str(self.root), *map(str, arguments)],
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def passes(self, name, *arguments):
        code, output = self.run_gate(name, *arguments)
        self.assertEqual(code, 0, output)

    def fails(self, name, expected, *arguments):
        code, output = self.run_gate(name, *arguments)
        self.assertEqual(code, 1, output)
        self.assertIn(expected, output)


class GatesTest(ProjectCase):
    def test_layers(self):
        self.passes("layers")
        cases = {
            '#include "engine/engine.h"\n': ("base", "may not include"),
            '#include "status.h"\n': ("base", "is no file of src/"),
            "#include <boost/asio.hpp>\n": ("engine", "belongs to cli only"),
        }
        self.write("src/engine/engine.h", "#pragma once\n")
        for source, (module, expected) in cases.items():
            self.write(f"src/{module}/bad.cc", source)
            self.fails("layers", expected)
            (self.root / f"src/{module}/bad.cc").unlink()
        self.write("src/elsewhere/x.cc", "int x;\n")
        self.fails("layers", "src/elsewhere is not in layers.txt")

    def test_layers_of_cmake(self):
        self.write("src/engine/CMakeLists.txt", "add_module(engine)\n")
        self.fails("layers", "base is not among the DEPS")
        self.write("src/engine/CMakeLists.txt", "add_module(engine DEPS base cli)\n")
        self.fails("layers", "DEPS names cli")

    def test_layers_table_has_no_upward_line(self):
        self.write("tools/gates/layers.txt", "base: engine\nengine: base\n")
        self.fails("layers", "does not stand above it")

    def test_sizes(self):
        self.passes("sizes")
        self.write("src/base/long.cc", "\n" * 801)
        self.fails("sizes", "src/base/long.cc: 801 lines")
        self.write("tools/gates/size_allow.txt", "src/base/long.cc: a table\n")
        self.passes("sizes")
        self.write("src/base/long.cc", "\n")
        self.fails("sizes", "needs no exception any more")

    def test_sizes_of_functions(self):
        body = "  x();\n" * 130
        self.write("src/base/f.cc", "namespace a {\nclass C {\n  int method(int a,\n    int b) {\n" + body + "  }\n};\n}\n")
        self.fails("sizes", "method() has")

    def test_forbidden(self):
        self.passes("forbidden")
        cases = {
            "src/base/a.cc": ('const char* x = getenv("A");\n', "environment"),
            "src/base/b.cc": ('void f() { std::printf("x"); }\n', "printing"),
            "src/base/c.cc": ("void f() { std::abort(); }\n", "ending the process"),
            "src/base/d.cc": ("thread_local int x;\n", "thread_local"),
            "src/engine/e.cc": ("auto t = std::chrono::steady_clock::now();\n", "time and chance"),
            "src/kernels/f.cc": ("float g(float x) { return std::exp(x); }\n", "libm"),
            "src/kernels/avx2/g.cc": ("#include <vector>\n", "C++ library headers"),
            "cmake/h.cmake": ("add_compile_options(-ffast-math)\n", "licence"),
            "docs/i.md": ("see /" + "home/somebody/notes\n", "paths of one machine"),
        }
        for path, (text, expected) in cases.items():
            self.write(path, text)
            self.fails("forbidden", expected)
            (self.root / path).unlink()

    def test_forbidden_reads_code_and_not_comments(self):
        self.write("src/base/a.cc", '// printf(x) and getenv\nconst char* k = "std::abort() printf(";\n/* exit(1) */\n')
        self.write("src/cli/b.cc", 'void f() { std::printf("x"); }\n')
        self.write("cmake/c.cmake", "add_compile_options(-fno-fast-math -ffp-contract=off)\n")
        self.passes("forbidden")


class ObjectGatesTest(ProjectCase):
    """Gates that read a build folder, here one made by hand with the compiler."""

    def compile(self, path, source):
        module, _, rest = path.removeprefix("src/").partition("/")
        out = self.root / f"build/src/{module}/CMakeFiles/sterling_{module}.dir/{rest}.o"
        out.parent.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("g++") or shutil.which("clang++")
        command = [compiler, "-std=c++20", "-O1", "-fPIC", "-x", "c++", "-c", "-", "-o", str(out)]
        subprocess.run(command, input=source, text=True, check=True)

    def test_symbols(self):
        table = "namespace s { struct T { int (*f)(int); }; namespace { int f(int x) { return x; } } extern const T kT; const T kT{f}; }\n"
        self.compile("src/kernels/avx2/tier.cc", table)
        self.passes("symbols", self.root / "build")
        self.compile("src/kernels/avx2/tier.cc", table + "int second(int x) { return x; }\n")
        self.fails("symbols", "exports 2 symbols", self.root / "build")
        self.compile("src/kernels/avx2/tier.cc", table + "inline int w(int x) { return x; }\nint (*p)(int) = w;\n")
        self.fails("symbols", "weak or unique symbol", self.root / "build")

    def test_symbols_of_mutable_data(self):
        good = 'static const char* const kNames[] = {"a", "b"};\nconst char* name(int i) { return kNames[i]; }\n'
        self.compile("src/engine/e.cc", good)
        self.passes("symbols", self.root / "build")
        self.compile("src/engine/e.cc", good + "int next() { static int counter = 0; return ++counter; }\n")
        self.fails("symbols", "mutable data", self.root / "build")
        self.compile("src/engine/e.cc", good + "int level = 3;\n")
        self.fails("symbols", "mutable data level", self.root / "build")

    def test_registered(self):
        self.write("src/engine/engine_test.cc", "\n")
        self.write("build/CTestTestfile.cmake", 'add_test(other "/bin/true")\n')
        self.fails("registered", "src/engine/engine_test.cc: no ctest runs it", self.root / "build")
        # A program that exists, under the name that add_module gives.
        program = self.root / "build/engine_engine_test"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        self.write("build/CTestTestfile.cmake", f'add_test(engine "{program}")\n')
        self.passes("registered", self.root / "build")


if __name__ == "__main__":
    unittest.main()
