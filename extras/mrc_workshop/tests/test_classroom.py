"""A class: roster and deadlines, collecting from what students own, late versions, grades, resets."""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator

import pytest

from mrc_topo.shipped import shipped
from mrc_workshop import exercise, grade, learner
from mrc_workshop.classroom import classfile, collecting, gradebook, handin, page, resetting, standing
from mrc_workshop.classroom.classfile import Classroom
from mrc_workshop.classroom.collecting import Collected
from mrc_workshop.classroom.reading import RefusedError
from mrc_workshop.classroom.standing import State
from mrc_workshop.classroom.store import ClassStore
from mrc_workshop.exercise import WorkshopError
from mrc_workshop.grade import Grade
from support.mrclab import within

USID = shipped("workshop") / "01-usid"
WINDOW = shipped("workshop") / "07-window"
#: Between the times of the first and the later versions of these tests.
DUE_S = 1_800_000_000
CLASS = f"""\
title: MRC <1>
inbox: inbox
exercises:
  - {{name: 1, due: "{classfile.shown_time(DUE_S)}", points: 10}}
  - {{name: 7}}
late_factor: 0.5
"""
ROSTER = '''\
id,name,account,folder,group
s1,"Lee, Ann ""Al""",,work/s1,A
s2,=cmd|' /C calc'!A0,,work/s2,@B
s3,Eve Roy,,,A
'''


def made(folder: pathlib.Path, content: str = CLASS, roster: str = ROSTER) -> Classroom:
    """Return a class in a new folder; s1 and s2 have folders, s3 hands files in."""
    folder.mkdir(exist_ok=True)
    for part in ("inbox", "work/s1", "work/s2"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "class.yaml").write_text(content)
    (folder / "roster.csv").write_text(roster)
    return classfile.read_class(folder)


def start(classroom: Classroom, student: str, of: pathlib.Path = USID / "solution") -> pathlib.Path:
    place = classroom.folder / "work" / student / of.parent.name
    shutil.copytree(of, place, dirs_exist_ok=True)
    return place


def collected(classroom: Classroom, at_s: float | None = None) -> Collected:
    store = ClassStore(classroom)
    with store.changing():
        return collecting.collect(classroom, store, at_s)


def graded(classroom: Classroom, shares: dict[str, float], late: bool = False) -> None:
    """Write grades of what was collected as the grader does; what they say is the test's."""
    store, rows = ClassStore(classroom), []
    for assignment in classroom.assignments:
        for student in classroom.students:
            receipt = store.counted(student.id, assignment)[late]
            if receipt is not None and student.id in shares:
                share = shares[student.id]
                made_of = grade.digest_of(assignment.exercise, store.version(receipt), classroom.content.seeds)
                reason = "" if share == 1 else "+it shifted by 32 bits"
                rows.append(
                    Grade(student.id, assignment.name, share == 1, share, 1, 2, None, reason, "yes", 1.0, made_of)
                )
    grade.write(store.folder / standing.GRADES[late], rows)


def by_student(classroom: Classroom, name: str = "01-usid") -> dict[str, standing.Standing]:
    found = standing.standings(classroom, ClassStore(classroom))
    return {each.student: each for each in found if each.exercise == name}


# --- class file and roster ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title:", "titel:", "class.yaml:1: titel: unknown key; did you mean 'title'?"),
        ("name: 7", "name: 77", "class.yaml:5: exercises.1.name: 77: no exercise of that name"),
        ("name: 7", "name: 01-usid", "class.yaml:5: exercises.1.name: 01-usid is given twice; keep one"),
        ("inbox: inbox", "inbox: ../inbox", "class.yaml:2: inbox: write a folder below the other one"),
        ("inbox: inbox", "inbox: /etc", "class.yaml:2: inbox: write a folder below the other one"),
        (f'"{classfile.shown_time(DUE_S)}"', '"2027-05-04 18:00"', "has no zone; add one"),
        (f'"{classfile.shown_time(DUE_S)}"', "soon", "'soon' is not a time; write it as"),
        ("points: 10", "points: 0", "class.yaml:4: exercises.0.points: input should be greater than 0"),
        ("late_factor: 0.5", "late_factor: 0.5\nseeds: [4711]", "seeds: other users can read them"),
    ],
)
def test_mistake_in_a_class_file_names_file_place_and_remedy(
    tmp_path: pathlib.Path, old: str, new: str, said: str
) -> None:
    made(tmp_path)
    (tmp_path / "class.yaml").write_text(CLASS.replace(old, new))
    (tmp_path / "class.yaml").chmod(0o644)
    with pytest.raises(WorkshopError) as caught:
        classfile.read_class(tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("roster", "said"),
    [
        ("id;name\ns1;Ann\n", None),
        ("\ufeffID,Name\r\ns1,Ann\r\n\r\n", None),
        ("id,name\n", "roster.csv: has no students"),
        ("id,naem\ns1,Ann\n", "roster.csv:1: column 'naem' is unknown; the first line has id, name and any of account"),
        ("name\nAnn\n", "roster.csv:1: columns are missing or double"),
        ("id,name\n=1,Ann\n", "roster.csv:2: id: use letters, digits"),
        ("id,name\n../s1,Ann\n", "roster.csv:2: id: use letters, digits"),
        ("id,name\ns1,Ann,x\n", "roster.csv:2: has not as many cells"),
        ("id,name\ns1,Ann\nS1,Bob\n", "roster.csv:3: id: 'S1' is in an earlier line"),
        ("id,name,account\ns1,Ann,a;b\n", "roster.csv:2: account: write the name of an account"),
        ("id,name,folder\ns1,Ann,../../etc\n", "roster.csv:2: folder: write a folder below"),
        ("id,name,account,folder\ns1,Ann,ann,work\n", "roster.csv:2: s1: has both an account and a folder"),
        ('id,name\ns1,"Ann\n', "not CSV"),
    ],
)
def test_roster_is_read_or_its_mistake_named(tmp_path: pathlib.Path, roster: str, said: str | None) -> None:
    path = tmp_path / "roster.csv"
    path.write_text(roster, newline="")
    if said is None:
        assert [(each.id, each.name) for each in classfile.read_roster(path)] == [("s1", "Ann")]
        return
    with pytest.raises(WorkshopError) as caught:
        classfile.read_roster(path)
    assert said in str(caught.value)


def test_example_can_be_read_and_is_secret(tmp_path: pathlib.Path) -> None:
    paths = classfile.write_example(tmp_path / "mine")
    assert [each.stat().st_mode & 0o077 for each in paths] == [0, 0]
    assert [each.id for each in classfile.read_class(tmp_path / "mine").students] == ["s001", "s002"]
    with pytest.raises(WorkshopError, match="is not empty"):
        classfile.write_example(tmp_path / "mine")


# --- collecting ---------------------------------------------------------------------------------------------


def test_nothing_of_a_students_is_followed_or_believed(tmp_path: pathlib.Path) -> None:
    """Links, pipes, huge files and forged results: they are named, and no secret comes into the records."""
    classroom = made(tmp_path / "class")
    secret = tmp_path / "secret.p4"
    secret.write_text("the instructor's\n")
    mine = start(classroom, "s1")
    (mine / "usid.p4").unlink()
    (mine / "usid.p4").symlink_to(secret)
    (mine / "grades.csv").write_text("passed\n")
    whole = classroom.folder / "work" / "s2" / "01-usid"
    whole.symlink_to(USID / "solution")
    start(classroom, "s2", WINDOW / "starter")
    found = collected(classroom)
    assert [(each.student, each.exercise) for each in found.receipts] == [("s1", "01-usid"), ("s2", "07-window")]
    assert "usid.p4: is a link, pipe, device or folder; put a plain file there" in found.problems[0]
    assert "01-usid: is a link or not a folder" in found.problems[1]
    assert not list(classroom.store.rglob("*.p4"))
    for make in (lambda path: os.mkfifo(path), lambda path: path.write_bytes(bytes(1_000_001))):
        (mine / "usid.p4").unlink()
        make(mine / "usid.p4")
        assert "usid.p4: is" in collected(classroom).problems[0]
    assert by_student(classroom)["s1"].reason.startswith("usid.p4: is larger than 1000000 bytes")
    # The class file of a student is none, and a folder that belongs to another user is not ours.
    shutil.rmtree(classroom.store)
    classroom.store.mkdir()
    classroom.store.chmod(0o777)
    with pytest.raises(WorkshopError, match="others can write to it"):
        collected(classroom)


def test_file_of_another_user_is_not_read(tmp_path: pathlib.Path) -> None:
    """A hard link to a file of the instructor's would be such a file."""
    from mrc_workshop.classroom import reading

    (tmp_path / "usid.p4").write_text("mine\n")
    with reading.opened(tmp_path, []) as folder:
        assert reading.read_file(folder, "usid.p4", os.getuid())[0] == b"mine\n"
        with pytest.raises(RefusedError, match="belongs to another user"):
            reading.read_file(folder, "usid.p4", os.getuid() + 1)
        os.link(tmp_path / "usid.p4", tmp_path / "other")
        with pytest.raises(RefusedError, match="has a second name"):
            reading.read_file(folder, "usid.p4", None)


def test_versions_are_kept_and_late_ones_are_marked(tmp_path: pathlib.Path) -> None:
    classroom = made(tmp_path / "class")
    place = start(classroom, "s1")
    assert [each.number for each in collected(classroom, DUE_S).receipts] == [1]
    assert collected(classroom, DUE_S + 5).receipts == []  # nothing has changed
    graded(classroom, {"s1": 0.5})
    assert (by_student(classroom)["s1"].points, by_student(classroom)["s1"].late) == (5, False)
    (place / "usid.p4").write_text("// better\n")
    assert [each.number for each in collected(classroom, DUE_S + 1).receipts] == [2]
    found = by_student(classroom)["s1"]
    assert (found.state, found.late, found.points, found.versions) == (State.WAITING, True, None, 2)
    graded(classroom, {"s1": 1.0}, late=True)
    found = by_student(classroom)["s1"]
    assert (found.state, found.grade, found.late_grade, found.points) == (State.PASSED, 0.5, 1.0, 5)
    assert found.word == "passed late"
    # The deadline is moved: the same version is in time, and the last one counts.
    (classroom.folder / "class.yaml").write_text(
        CLASS.replace(classfile.shown_time(DUE_S), classfile.shown_time(DUE_S + 9))
    )
    moved = classfile.read_class(classroom.folder)
    assert not by_student(moved)["s1"].late
    graded(moved, {"s1": 1.0})
    assert by_student(moved)["s1"].points == 10
    assert len(list((classroom.store / "versions/01-usid/s1").iterdir())) == 2


def test_time_of_a_version_is_the_kernels_and_not_the_students(tmp_path: pathlib.Path) -> None:
    classroom = made(tmp_path / "class")
    place = start(classroom, "s1")
    os.utime(place / "usid.p4", (1, 1))
    (receipt,) = collected(classroom).receipts
    assert receipt.changed_s == (place / "usid.p4").stat().st_ctime > 1_000_000_000


def archive(path: pathlib.Path, **files: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made_of:
        for name, data in files.items():
            made_of.writestr(name, data)


def test_handed_in_files_belong_to_whom_the_inbox_says(tmp_path: pathlib.Path) -> None:
    classroom = made(tmp_path / "class")
    inbox = classroom.folder / "inbox"
    handin.write(exercise.load(USID), USID / "solution", inbox / "s3-01-usid.zip")
    handin.write(exercise.load(WINDOW), WINDOW / "solution", inbox / "s3_w.zip")
    (inbox / "s1").mkdir()
    handin.write(exercise.load(USID), USID / "starter", inbox / "s1" / "s3-x.zip")  # the folder decides
    shutil.copy(inbox / "s3-01-usid.zip", inbox / "s2-late.s3.zip")
    shutil.copy(inbox / "s3-01-usid.zip", inbox / "x.zip")
    found = collected(classroom, DUE_S)
    assert sorted((each.student, each.exercise) for each in found.receipts) == [
        ("s1", "01-usid"), ("s2", "01-usid"), ("s3", "01-usid"), ("s3", "07-window"),
    ]  # fmt: skip
    assert len(found.problems) == 1
    assert "x.zip: belongs to no student of the roster; rename it to ID-x.zip" in found.problems[0]
    assert collected(classroom, DUE_S).receipts == []
    assert by_student(classroom)["s3"].equals == ("solution", "s2")
    assert by_student(classroom)["s1"].equals == ()  # the starter
    start(classroom, "s2", USID / "starter")
    collected(classroom, DUE_S)
    assert by_student(classroom)["s2"].equals == ()


def test_old_file_of_the_inbox_does_not_become_the_last_version_again(tmp_path: pathlib.Path) -> None:
    classroom = made(tmp_path / "class")
    for number in (1, 2):
        archive(classroom.folder / "inbox" / f"s3-{number}.zip", **{"01-usid/usid.p4": f"// {number}\n".encode()})
        time.sleep(0.02)  # the kernel's time of a file has ticks
    for _ in range(2):
        collected(classroom)
        last = ClassStore(classroom).receipts("s3", "01-usid")[-1]
        assert (last.number, (ClassStore(classroom).version(last) / "usid.p4").read_text()) == (2, "// 2\n")


def test_no_more_than_the_limit_is_unpacked(tmp_path: pathlib.Path) -> None:
    archive(tmp_path / "a.zip", x=bytes(100_000))
    with zipfile.ZipFile(tmp_path / "a.zip") as opened:
        assert len(handin._content(opened, opened.infolist()[0], 1000)) == 1001


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: path.write_bytes(b"no"), "is not a zip archive"),
        (lambda path: path.symlink_to("/etc/passwd"), "is a link, pipe"),
        (lambda path: os.mkfifo(path), "is a link, pipe"),
        (lambda path: archive(path, **{"../../01-usid/x": b""}), None),
        (lambda path: archive(path, readme=b""), "has no exercise of this class"),
        (lambda path: archive(path, **{f"{n}/x": b"" for n in range(1001)}), "has 1001 files"),
        (lambda path: archive(path, **{"01-usid/usid.p4": bytes(50_000_000)}), "usid.p4: is larger than 1000000"),
    ],
    ids=["no archive", "link", "pipe", "leads out", "empty", "many", "bomb"],
)
def test_hostile_archive_is_named_and_harms_nothing(tmp_path: pathlib.Path, write: object, said: str | None) -> None:
    classroom = made(tmp_path / "class")
    write(classroom.folder / "inbox" / "s3-a.zip")  # type: ignore[operator]
    found = collected(classroom)
    assert len(found.problems) == (said is not None)
    assert said is None or said in found.problems[0]
    assert not list(tmp_path.rglob("x"))


def test_archive_that_a_learner_made_by_hand_counts_by_its_marker(tmp_path: pathlib.Path) -> None:
    classroom = made(tmp_path / "class")
    archive(
        classroom.folder / "inbox" / "s3.anything.zip",
        **{f"mine/{learner.MARKER}": b"01-usid\n", "mine/usid.p4": b"// mine\n"},
    )
    (receipt,) = collected(classroom).receipts
    assert (ClassStore(classroom).version(receipt) / "usid.p4").read_bytes() == b"// mine\n"


# --- what is shown and exported -----------------------------------------------------------------------------


def test_grades_are_exported_with_a_row_for_each_student_and_exercise(tmp_path: pathlib.Path) -> None:
    classroom = made(tmp_path / "class")
    start(classroom, "s1")
    start(classroom, "s2", USID / "starter")
    collected(classroom, DUE_S + 1)
    graded(classroom, {"s1": 1.0, "s2": 0.5}, late=True)
    found = standing.standings(classroom, ClassStore(classroom))

    formula = "'=cmd|' /C calc'!A0"
    when = classfile.shown_time(DUE_S + 1)
    table = list(csv.reader(io.StringIO(gradebook.export(classroom, found), newline="")))
    assert table[0] == list(gradebook.COLUMNS)
    assert len(table) == 7
    assert dict(zip(table[0], table[3], strict=True)) | {"reason": ""} == {
        "id": "s2", "name": formula, "group": "'@B", "exercise": "01-usid", "state": "failed", "points": "2.5",
        "most_points": "10.0", "grade": "", "late_grade": "0.5", "late": "late", "changed": when, "versions": "1",
        "equals": "", "reason": "", "isolated": "yes",
    }  # fmt: skip
    assert table[3][13] == "'+it shifted by 32 bits"
    assert not [cell for row in table for cell in row if cell.startswith(("=", "+", "@"))]
    text = page.page(classroom, found, classroom.students, DUE_S)
    assert "MRC &lt;1&gt;" in text
    assert "50 % late" in text
    assert "01-usid: 1 of 3" in text
    assert "http" not in text.replace("http-equiv", "")


def mrclab(place: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    return within("workshop", *words, cwd=place, MRCLAB_WORKSHOP=str(place / "progress.json"), COLUMNS="100")


@pytest.mark.slow
def test_commands_of_a_class_on_laptops(tmp_path: pathlib.Path) -> None:
    """Two students hand files in; the instructor collects them, grades, looks, exports."""
    from support.workshop import small

    small.make(tmp_path / "50-policy")
    assert mrclab(tmp_path, "class", "new", "mine").returncode == 0
    (tmp_path / "mine" / "class.yaml").write_text(
        "title: Laptops\ninbox: inbox\nexercises: [{name: ../50-policy, points: 4}]\n"
    )
    for student, part in (("s001", "solution"), ("s002", "starter")):
        named = f"mine/inbox/{student}-50-policy.zip"
        done = mrclab(tmp_path, "hand-in", "./50-policy", f"50-policy/{part}", "--as", student, "-o", named)
        assert done.stdout == f"{named}: policy.py\n", done.stderr
    done = mrclab(tmp_path, "class", "collect", "--class", "mine")
    assert "2 new versions, 0 problems" in done.stdout, done.stderr
    done = mrclab(tmp_path, "class", "grade", "--class", "mine")
    assert "0 not handed in, 0 waiting, 1 passed, 1 failed" in done.stdout, done.stderr
    assert "of" not in mrclab(tmp_path, "class", "grade", "--class", "mine").stdout  # nothing is run again
    done = mrclab(tmp_path, "class", "progress", "--class", "mine/class.yaml")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["s001", "Lee,", "Ann", "passed", "=", "4"] in lines
    assert ["s002", "Bob", "Roy", "0", "%", "0"] in lines
    found = json.loads(mrclab(tmp_path, "class", "progress", "--class", "mine", "--group", "B", "--json").stdout)
    assert [(each["student"], each["state"]) for each in found] == [("s002", "failed")]
    assert "NotImplementedError" in found[0]["reason"]
    done = mrclab(tmp_path, "class", "export", "--class", "mine", "-o", "m.csv")
    assert done.stdout == "m.csv: 2 students, 1 exercises\n"
    done = mrclab(tmp_path, "class", "progress", "--class", "mine", "--group", "Z")
    assert (done.returncode, "groups of the roster: A, B" in done.stderr) == (2, True)


# --- reset --------------------------------------------------------------------------------------------------


def test_reset_of_a_learner_follows_no_link_and_waits_for_no_pipe(tmp_path: pathlib.Path) -> None:
    found = exercise.load(USID)
    secret = tmp_path / "secret"
    secret.write_text("mine\n")
    for number, make in enumerate((lambda path: path.symlink_to(secret), os.mkfifo)):
        place = tmp_path / f"{number}"
        place.mkdir()
        make(place / "usid.p4")
        learner.reset(found, place)
        assert (place / "usid.p4").read_bytes() == (USID / "starter" / "usid.p4").read_bytes()
        assert not (place / "usid.p4").is_symlink()
        assert os.path.lexists(place / "usid.p4.mine")
    assert secret.read_text() == "mine\n"


@pytest.fixture
def open_folder() -> Iterator[pathlib.Path]:
    """Return a temporary folder that other users can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


def test_link_that_appears_during_a_reset_is_not_written_through(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine\n")
    (tmp_path / "usid.p4").write_text("theirs\n")
    rename = pathlib.Path.replace

    def swapped(path: pathlib.Path, target: pathlib.Path) -> None:
        rename(path, target)
        path.symlink_to(secret)

    monkeypatch.setattr(pathlib.Path, "replace", swapped)
    with pytest.raises(WorkshopError, match="File exists"):
        learner.reset(exercise.load(USID), tmp_path)
    assert secret.read_text() == "mine\n"


def test_instructors_reset_keeps_a_backup(open_folder: pathlib.Path) -> None:
    classroom = made(open_folder / "class")
    place = start(classroom, "s1")
    if os.geteuid() == 0:  # as root nothing is written in root's name
        entry = pwd.getpwnam("nobody")
        for each in (place, *place.iterdir()):
            os.chown(each, entry.pw_uid, entry.pw_gid)
        if not _nobody_reaches(place):
            pytest.skip("user nobody reaches neither this checkout nor the temporary folder")
    store = ClassStore(classroom)
    with store.changing():
        backup = resetting.reset(classroom, store, classroom.student("s1"), classroom.assignment("1"))
    assert (backup / "usid.p4").read_bytes() == (USID / "solution" / "usid.p4").read_bytes()
    assert backup.is_relative_to(classroom.store)
    assert (place / "usid.p4").read_bytes() == (USID / "starter" / "usid.p4").read_bytes()
    assert (place / "usid.p4").stat().st_uid == place.stat().st_uid
    with store.changing(), pytest.raises(WorkshopError, match="s2 has not started 01-usid"):
        resetting.reset(classroom, store, classroom.student("s2"), classroom.assignment("1"))
    with store.changing(), pytest.raises(WorkshopError, match="they type `mrclab workshop reset 1`"):
        resetting.reset(classroom, store, classroom.student("s3"), classroom.assignment("1"))


def _nobody_reaches(place: pathlib.Path) -> bool:
    script = f"import mrc_workshop.learner, os; os.stat({str(place)!r})"
    command = [sys.executable, "-I", "-c", script]
    return subprocess.run(command, user="nobody", cwd="/", capture_output=True, check=False).returncode == 0


def test_two_commands_do_not_write_the_records_at_once(tmp_path: pathlib.Path) -> None:
    classroom = made(tmp_path / "class")
    with (
        ClassStore(classroom).changing(),
        pytest.raises(WorkshopError, match="another command collects"),
        ClassStore(classroom).changing(),
    ):
        time.sleep(0)
