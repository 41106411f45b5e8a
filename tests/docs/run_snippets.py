#!/usr/bin/env python3
"""Runs what the documentation says, and checks what it claims.

Usage: run_snippets.py BUILD_DIR        (python3, standard library only; as root or as an ordinary user)

A fenced block is run if an HTML comment stands on the line before it:

  <!-- test: NAME [retry] [file=PATH] -->   Blocks of one NAME run one after the other in one shell, in a folder that looks like a
                                            fresh checkout after `make build`. `sh` is run, the first failing command fails it;
                                            `retry` repeats a block that only looks, until its output is as shown; file=PATH
                                            saves the block instead. Names with a meaning of their own: see special_blocks.
  <!-- output -->                           The block shows lines that the block before it prints, in this order. Ids, worker
                                            names and times may differ.
  <!-- excerpt: PATH -->                    The block is found in that file.

The daemon is the one of BUILD_DIR, with its embedded PostgreSQL, on free ports; 127.0.0.1:8470 and :8471 in a block become those.
Every failure names the file and line of its snippet.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BLOCK_TIMEOUT = 40  # Seconds.

failures = []


def fail(where, message):
    failures.append(f"{where}: {message}")
    print(f"FAILED {where}: {message}", file=sys.stderr, flush=True)


def documents():
    """The pages: those that git knows or could know, so that a build folder's files are not read."""
    pages = [SOURCE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    pages += sorted((SOURCE / "docs").rglob("*.md")) + sorted((SOURCE / "charts").rglob("*.md"))
    for page in pages:
        if not page.is_file():
            fail(page.relative_to(SOURCE), "the page is missing")
    return [page for page in pages if page.is_file()]


class Block:
    def __init__(self, page, line, language, marker):
        self.page = page
        self.line = line
        self.language = language
        self.marker = marker
        self.lines = []
        self.output = None  # The block that shows what it prints.

    @property
    def where(self):
        return f"{self.page.relative_to(SOURCE)}:{self.line}"

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    @property
    def words(self):
        return self.marker.split()[1:] if self.marker else []

    def word(self, key):
        for word in self.words:
            if word.startswith(key + "="):
                return word[len(key) + 1 :]
        return None


def read_blocks(page):
    blocks, block, marker, fence = [], None, "", ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if block is not None:
            if line.strip() == fence:
                blocks.append(block)
                block = None
            else:
                block.lines.append(line[block.indent :] if line[: block.indent].isspace() or not block.indent else line)
            continue
        opening = re.match(r"^(\s*)(`{3,})(\w*)\s*$", line)
        if opening:
            block = Block(page, number, opening[3], marker)
            block.indent = len(opening[1])
            fence = opening[2]
            if block.marker == "output":
                if not blocks:
                    fail(block.where, "an output without a block before it")
                else:
                    blocks[-1].output = block
            marker = ""
            continue
        comment = re.match(r"^\s*<!--\s*((?:test|excerpt):.*?|output)\s*-->\s*$", line)
        if comment:
            marker = comment[1]
        elif line.strip():
            if marker:
                fail(f"{page.relative_to(SOURCE)}:{number}", f"the comment '{marker}' is not followed by a fenced block")
            marker = ""
    if block is not None:
        fail(block.where, "the fenced block does not end")
    return blocks


# --- What needs no daemon -------------------------------------------------------------------------------------------------


def anchor_of(heading):
    text = re.sub(r"[`*]", "", heading.strip()).lower()
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def prose_lines(page):
    """The lines outside of fenced blocks, with their numbers."""
    inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


def check_links(page):
    for number, line in prose_lines(page):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"^[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            where = f"{page.relative_to(SOURCE)}:{number}"
            if not file.exists():
                fail(where, f"the link {target} leads nowhere")
            elif anchor and file.suffix == ".md":
                headings = [line.lstrip("#") for _, line in prose_lines(file) if line.startswith("#")]
                if anchor not in [anchor_of(heading) for heading in headings]:
                    fail(where, f"there is no heading for #{anchor} in {file.relative_to(SOURCE)}")


def check_no_machine(page):
    """Pages speak of any machine, not of the one they were written on."""
    places = re.compile(r"(?<![\w.$>])/(?:work|root|home|mnt|Users)/")
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if places.search(line) or str(SOURCE) + "/" in line:
            fail(f"{page.relative_to(SOURCE)}:{number}", "names a path of somebody's machine")


def check_paths(page):
    """`server/engine/engine.h` and the like exist; `sql/claim.sql` is short for the store's."""
    tops = "server|client|proto|migrations|tests|docs|charts|cmake"
    for number, line in prose_lines(page):
        for span in re.findall(r"`([^`]+)`", line):
            where = f"{page.relative_to(SOURCE)}:{number}"
            if re.fullmatch(rf"(?:{tops})/[\w./*-]*", span):
                if "NNNN" in span or "janitor" in span:
                    continue
                if not list(SOURCE.glob(span.rstrip("/"))):
                    fail(where, f"there is no {span}")
            elif re.fullmatch(r"(?:sql/)?[a-z_]+\.sql", span):
                if not (SOURCE / "server/store/postgres/sql" / span.removeprefix("sql/")).is_file():
                    fail(where, f"there is no statement {span}")
            elif re.fullmatch(r"engine/\w+(?:\.\w+)?", span):
                if not list(SOURCE.glob(f"server/{span}*")):
                    fail(where, f"there is no server/{span}")


def check_make_targets(page):
    makefile = (SOURCE / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", line):
            if target not in targets:
                fail(f"{page.relative_to(SOURCE)}:{number}", f"the Makefile has no target {target}")


def check_tests_named(page):
    """`Suite.Test` in a page is the name of a test."""
    known = set()
    for file in (SOURCE / "tests").rglob("*.cc"):
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", file.read_text(encoding="utf-8"), re.MULTILINE):
            known.add(f"{suite}.{name}")
    for number, line in prose_lines(page):
        for name in re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", line):
            if name not in known and not re.search(r"\.(md|txt|proto|h|cc)$", name):
                fail(f"{page.relative_to(SOURCE)}:{number}", f"there is no test {name}")


def check_architecture():
    """The tree in docs/architecture.md names folders that exist, and every layer of the server."""
    page = SOURCE / "docs/architecture.md"
    tree = [block for block in read_blocks(page) if any(line.startswith("proto/") for line in block.lines)]
    if len(tree) != 1:
        return fail("docs/architecture.md", "has no tree")
    named, parent = set(), ""
    for offset, line in enumerate(tree[0].lines, 1):
        entry = re.match(r"^(\s*)([\w./]+/)", line)
        if not entry:
            continue
        if not entry[1]:
            parent = entry[2] if entry[2] == "server/" else ""
        path = (parent if entry[1] else "") + entry[2]
        named.add(path)
        if not (SOURCE / path).is_dir():
            fail(f"docs/architecture.md:{tree[0].line + offset}", f"there is no folder {path}")
    for layer in sorted((SOURCE / "server").iterdir()):
        if layer.is_dir() and f"server/{layer.name}/" not in named:
            fail(f"docs/architecture.md:{tree[0].line}", f"the tree does not name server/{layer.name}/")
    for top in sorted(SOURCE.iterdir()):
        hidden = top.name.startswith(".") or top.name in ("bin", "build", "__pycache__")
        if top.is_dir() and not hidden and not any(name.startswith(top.name + "/") for name in named):
            fail(f"docs/architecture.md:{tree[0].line}", f"the tree does not name {top.name}/")


def check_configuration(tenured):
    """docs/configuration.md and `tenured config` know the same settings with the same units, defaults and words."""
    page = SOURCE / "docs/configuration.md"
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    printed = subprocess.run([tenured, "config", "--json"], capture_output=True, text=True, env=environment, timeout=20, check=False)
    if printed.returncode != 0:
        return fail("docs/configuration.md", f"`tenured config --json` failed: {printed.stderr}")
    expected = {}
    for line in printed.stdout.splitlines():
        setting = json.loads(line)
        row = [setting["unit"], setting["default"], setting["help"] + "."]
        if "range" in setting:
            expected[setting["name"]] = row[:2] + [setting["range"]] + row[2:]
        else:
            expected["--" + setting["name"]] = row
    if not expected:
        return fail("docs/configuration.md", "`tenured config --json` printed nothing")
    written, section = {}, ""
    for number, line in prose_lines(page):
        if line.startswith("## "):
            section = line
        row = re.match(r"^\| `([^`]+)` \| (.*) \|$", line)
        if row and ("Settings" in section or "Tunables" in section):
            written[row[1]] = (number, [cell.strip() for cell in row[2].split(" | ")])
    for name, row in expected.items():
        if name not in written:
            fail("docs/configuration.md", f"{name} is missing; its row is | `{name}` | {' | '.join(row)} |")
        elif written[name][1] != row:
            fail(f"docs/configuration.md:{written[name][0]}", f"{name} differs; its row is | `{name}` | {' | '.join(row)} |")
    for name, (number, _) in written.items():
        if name not in expected:
            fail(f"docs/configuration.md:{number}", f"there is no setting {name}")


def check_excerpt(block):
    path = SOURCE / block.words[0]
    if not path.is_file():
        return fail(block.where, f"there is no {block.words[0]}")
    if block.text not in path.read_text(encoding="utf-8"):
        fail(block.where, f"is not found in {block.words[0]}")


# --- With a daemon --------------------------------------------------------------------------------------------------------


class Daemon:
    """`tenured serve` on free ports. start() waits until it says that it is ready."""

    def __init__(self, folder, name, tenured, arguments):
        self.log_path = folder / f"{name}.log"
        self.command = [tenured, "serve", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"] + arguments
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("TENURE_")}
        self.process = None
        self.grpc = self.http = ""

    def start(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                                            env=self.environment, start_new_session=True)
        ready = threading.Event()

        def read():
            for line in self.process.stdout:
                says = re.search(r"is ready: gRPC on (\S+), HTTP on http://(\S+)", line)
                if says:
                    self.grpc, self.http = says[1], says[2]
                    ready.set()
            ready.set()

        threading.Thread(target=read, daemon=True).start()
        ready.wait(60)
        if not self.grpc:
            raise RuntimeError(f"{' '.join(self.command)} did not become ready:\n{self.log()}")

    def log(self):
        return self.log_path.read_text(encoding="utf-8", errors="replace")[-4000:]

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(40)
            if status != 0:
                fail("tenured serve", f"ended with status {status}:\n{self.log()}")
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            fail("tenured serve", f"did not stop within 40 s:\n{self.log()}")


class Shell:
    """One bash for the blocks of one name. Its output, and that of what it leaves in the background, goes to a file."""

    def __init__(self, folder, name, environment):
        self.folder = folder
        self.log_path = folder / f"shell-{name}.log"
        self.script = folder / f"shell-{name}.sh"
        self.count = 0
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder,
                                            env=environment, text=True, start_new_session=True)

    def read(self, start):
        with open(self.log_path, "rb") as log:
            log.seek(start)
            return log.read().decode("utf-8", errors="replace")

    def run(self, code):
        """Runs `code`; (its output, None) or (its output, what went wrong)."""
        self.count += 1
        end = f"@@end {self.count}@@"
        start = self.log_path.stat().st_size
        self.script.write_text(code, encoding="utf-8")
        try:
            self.process.stdin.write(f"set -eu; . '{self.script}' </dev/null; echo '{end}'\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.read(start), "the shell has ended"
        deadline = time.monotonic() + BLOCK_TIMEOUT
        while time.monotonic() < deadline:
            output = self.read(start)
            if end in output:
                return output.replace(end, ""), None
            if self.process.poll() is not None:
                return self.read(start), f"a command failed (status {self.process.returncode})"
            time.sleep(0.05)
        return self.read(start), f"did not end within {BLOCK_TIMEOUT} s"

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def pattern_of(line):
    """A shown line as a regular expression: ids, worker names, times and blanks may differ."""
    pieces = []
    varying = re.compile(r"(?P<worker>\b\w[\w.]*-\d+-[0-9a-f]{8}\b)|(?P<id>\b\d+-\d{5}-\d+\b)|(?P<time>\b\d+\w* ago\b|\bnow\b|\bin \d+\w*)|(?P<blank>\s+)")
    at = 0
    for match in varying.finditer(line.strip()):
        pieces.append(re.escape(line.strip()[at : match.start()]))
        at = match.end()
        pieces.append({"worker": r"\S+-\d+-[0-9a-f]{8}", "id": r"\d+-\d{5}-\d+", "time": r"(?:now|in \S+|\S+ ago)", "blank": r"\s+"}[match.lastgroup])
    pieces.append(re.escape(line.strip()[at:]))
    return "".join(pieces)


def missing_line(shown, output):
    """The first shown line that `output` does not have, in order; None if it has all."""
    rest = output.splitlines()
    for line in shown:
        if not line.strip():
            continue
        pattern = re.compile(pattern_of(line))
        while rest and not pattern.search(rest[0]):
            rest.pop(0)
        if not rest:
            return line
        rest.pop(0)
    return None


def run_group(name, blocks, folder, daemon):
    started = time.monotonic()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TENURE_", "PG"))}
    environment["TENURE_SERVER"] = daemon.grpc
    environment["PATH"] = f"{folder / 'tools'}:{environment['PATH']}"
    shell = Shell(folder, name, environment)
    try:
        for block in blocks:
            code = block.text.replace("127.0.0.1:8470", daemon.grpc).replace("127.0.0.1:8471", daemon.http)
            if block.word("file"):
                (folder / block.word("file")).write_text(code, encoding="utf-8")
                continue
            if block.language != "sh":
                fail(block.where, f"a block of language '{block.language}' cannot be run")
                return
            deadline = time.monotonic() + 10
            while True:
                output, error = shell.run(code)
                missing = missing_line(block.output.lines, output) if block.output and not error else None
                if error or missing is None or "retry" not in block.words or time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            if error:
                fail(block.where, f"{error}\n{block.text}--- it printed:\n{output}")
                return
            if missing is not None:
                fail(block.output.where, f"did not see the line\n  {missing}\n--- it printed:\n{output}")
                return
    finally:
        shell.close()
    print(f"ok {blocks[0].where} {name} ({time.monotonic() - started:.1f} s)", flush=True)


def run(arguments, **options):
    return subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, timeout=BLOCK_TIMEOUT, check=False,
                          stdin=subprocess.DEVNULL, **options)


def check_config_file(block, folder, tenured):
    """The TOML example means what it says."""
    file = folder / "example.toml"
    file.write_text(block.text, encoding="utf-8")
    printed = run([tenured, "config", "--json", "--config", file], env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    if printed.returncode != 0:
        return fail(block.where, f"is refused: {printed.stderr}")
    given = [setting["name"] for setting in map(json.loads, printed.stdout.splitlines()) if setting["source"] == "file"]
    lines = [line for line in block.lines if "=" in line]
    if len(given) != len(lines):
        fail(block.where, f"has {len(lines)} settings, of which the daemon took {given}")


def check_roles(blocks, folder, daemon, tenured, tenurectl):
    """The roles of docs/operations.md suffice: a daemon and an application work with them, and the application with no more."""
    where = blocks["roles"].where
    socket = Path(folder, ".tenure/postgres/postmaster.pid").read_text(encoding="utf-8").splitlines()[4]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TENURE_", "PG"))}
    environment.update(PGHOST=socket, PGUSER="tenure", PGDATABASE="tenure")

    def psql(text, user="tenure", database="docs_roles"):
        return run(["psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-U", user, "-d", database, "-c", text], env=environment)

    def must(what, done):
        if done.returncode != 0:
            raise AssertionError(f"{what}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    second = Daemon(folder, "roles", tenured, ["--database-url", f"postgresql:///docs_roles?host={socket}&user=tenure_daemon"])
    try:
        must("create database", psql("create database docs_roles", database="tenure"))
        must("the roles", psql(blocks["roles"].text))
        must("migrate", run([tenured, "migrate", "up"] + second.command[-2:]))
        must("the grants", psql(blocks["grants"].text, user="tenure_daemon"))
        must("an application", psql("create role my_app login; grant tenure_application to my_app"))
        second.start()
        job = must("enqueue", psql("select tenure.enqueue('q', 'k', '{}')", user="my_app"))
        token = must("claim", run([tenurectl, "-s", second.grpc, "claim", "-q", "q", "--wait", "10s", "--token-only"]))
        if must("complete", psql(f"select tenure.complete('{token}')", user="my_app")) != job:
            raise AssertionError("tenure.complete did not answer the job's id")
        if psql("select 1 from tenure.job", user="my_app").returncode == 0:
            raise AssertionError("an application may read tenure.job")
        doctor = must("doctor", run([tenurectl, "-s", second.grpc, "doctor"]))
        if "0 errors, 0 warnings" not in doctor:
            raise AssertionError(f"doctor is not content:\n{doctor}")
        errors = must("background", run([tenurectl, "-s", second.grpc, "--json", "background", "list"]))
        for line in errors.splitlines():
            if json.loads(line).get("lastError"):
                raise AssertionError(f"a background worker failed: {line}")
        print(f"ok {where} roles", flush=True)
    except (AssertionError, RuntimeError) as error:
        fail(where, str(error))
    finally:
        second.stop()


def check_examples(folder, daemon, build):
    """The C++ examples work with each other."""
    producer, worker = build / "client/cpp/tenure_example_producer", build / "client/cpp/tenure_example_worker"
    for program in (producer, worker):
        if not program.is_file():
            return fail("client/cpp/examples", f"{program.name} is not built (cmake --build, target {program.name})")
    with open(folder / "example-worker.log", "wb") as log:
        process = subprocess.Popen([worker, daemon.grpc], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        produced = run([producer, daemon.grpc, "reader"])
        if produced.returncode != 0 or "Hello, reader!" not in produced.stdout:
            fail("client/cpp/examples/producer.cc", f"status {produced.returncode}: {produced.stdout}{produced.stderr}")
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait(20) != 0:
            fail("client/cpp/examples/worker.cc", (folder / "example-worker.log").read_text(encoding="utf-8"))
    print("ok client/cpp/examples", flush=True)


def find_python_with_grpc():
    for python in ("python3", "/usr/bin/python3"):
        found = shutil.which(python)
        if found and run([found, "-c", "import grpc, google.protobuf"]).returncode == 0:
            return found
    return None


def make_folder(folder, build):
    """What a reader has after `make build`."""
    (folder / "bin").mkdir()
    for program in ("tenured", "tenurectl"):
        (folder / "bin" / program).symlink_to(build / "bin" / program)
    for name in ("proto", "client", "docs"):
        (folder / name).symlink_to(SOURCE / name)
    (folder / "data").mkdir(mode=0o755)
    (folder / ".tenure").symlink_to(folder / "data")
    (folder / "tools").mkdir()
    python = find_python_with_grpc()
    if python is None:
        fail("README.md", "no python3 here has grpc: install python3-grpcio")
    else:
        tool = folder / "tools" / "python3"
        tool.write_text(f'#!/bin/sh\nexec {python} "$@"\n', encoding="utf-8")
        tool.chmod(0o755)


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    build = Path(sys.argv[1]).resolve()
    tenured, tenurectl = build / "bin/tenured", build / "bin/tenurectl"
    for program in (tenured, tenurectl):
        if not program.is_file():
            fail("BUILD_DIR", f"there is no {program}: build it first")
    if failures:
        return 1

    groups, special_blocks = {}, {}
    for page in documents():
        check_links(page)
        check_no_machine(page)
        check_paths(page)
        check_make_targets(page)
        check_tests_named(page)
        for block in read_blocks(page):
            if block.marker.startswith("excerpt:"):
                check_excerpt(block)
            elif block.marker.startswith("test:"):
                if not block.words:
                    fail(block.where, "the test has no name")
                # SQL for a database of its own, a file for `tenured config`: they are not typed into a shell.
                elif block.words[0] in ("roles", "grants", "config-file"):
                    special_blocks[block.words[0]] = block
                else:
                    groups.setdefault(block.words[0], []).append(block)
    check_architecture()
    check_configuration(tenured)
    for name in ("walk", "produce", "sql", "python", "primitives", "operate"):
        if name not in groups:
            fail("README.md", f"the snippets '{name}' are gone")
    for name in ("roles", "grants", "config-file"):
        if name not in special_blocks:
            fail("docs", f"the block '{name}' is gone")

    folder = Path(tempfile.mkdtemp(prefix="tenure-docs-"))
    # The embedded PostgreSQL of a root daemon runs as another user.
    folder.chmod(0o755)
    daemon = Daemon(folder, "daemon", tenured, ["--data-dir", str(folder / "data")])
    try:
        make_folder(folder, build)
        if "config-file" in special_blocks:
            check_config_file(special_blocks["config-file"], folder, tenured)
        daemon.start()
        for name, blocks in groups.items():
            run_group(name, blocks, folder, daemon)
        check_examples(folder, daemon, build)
        if "roles" in special_blocks and "grants" in special_blocks:
            check_roles(special_blocks, folder, daemon, tenured, tenurectl)
    except RuntimeError as error:
        fail("tenured serve", str(error))
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(failures)} failures" if failures else "the documentation is right", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
