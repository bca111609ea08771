#!/usr/bin/env python3
"""What the drawing makes of a small trace, one of a GPU and one of the emulator."""

from collections import defaultdict
import copy
import json
from pathlib import Path
import sys
import tempfile
import unittest
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from timeline import bars, perfetto, picture, places, summary, trace  # noqa: E402

QUEUED = "02_chunkwise/linear_attention/14_queued_products.cu"
SOURCE = places.text(QUEUED)


def line_of(text: str, after: int = 0) -> int:
    """The first line that has it. A test that names a line by its text survives changes of the file."""
    return next(i + 1 for i, line in enumerate(SOURCE) if i >= after and text in line)


# The lines of a ring: one warp fills a slot by a bulk copy, another one waits for it and gives it back.
INIT_FULL, INIT_EMPTY = line_of(": full) barrier.init"), line_of(": empty) barrier.init")
WAIT_EMPTY, EXPECT = line_of("ring.wait(empty)"), line_of(".arrive_expect(")
LOAD = line_of("load_chunk(")
WAIT_FULL, COMMIT = line_of("ring.wait(full)"), line_of("wgmma_commit()")
WAIT_PRODUCTS, ARRIVE = line_of("wgmma_wait<0>(scores)"), line_of("empty[ring.stage()].arrive()")
LAUNCH = line_of("launch(queued_products_kernel")
LINES = [INIT_FULL, INIT_EMPTY, WAIT_EMPTY, EXPECT, LOAD, WAIT_FULL, COMMIT, WAIT_PRODUCTS, ARRIVE, LAUNCH]
FULL, EMPTY = 8, 16  # where the barriers lie
CHUNKS, CHUNK = 8, 1000  # clocks


def gpu_trace() -> dict:
    """A slot is requested at 0, 1000, ...; the copy takes 400; the products run from 450 to 800, and at 850 the slot is free."""
    events = []

    def add(warp, kind, line, begin, end, barrier=0, phase=-1, value=0):
        events.append([warp, kind, LINES.index(line), begin, end, barrier, phase, value, -1])

    add(0, "init", INIT_FULL, -100, -100, FULL, value=1)
    add(0, "init", INIT_EMPTY, -90, -90, EMPTY, value=1)
    add(0, "start", INIT_EMPTY, -80, -80, 0, value=7)
    for n in range(CHUNKS):
        at = n * CHUNK
        # The producer waits for phase n - 1 of `empty`, the parity of which is that of n + 1.
        add(0, "wait", WAIT_EMPTY, at - 180 if n else -40, at - 10 if n else -30, EMPTY, (n + 1) % 2)
        add(0, "expect", EXPECT, at - 5, at - 5, FULL, value=4096)
        add(0, "load", LOAD, at, at, FULL)
        add(4, "wait", WAIT_FULL, at - 60, at + 400, FULL, n % 2)
        add(4, "commit_products", COMMIT, at + 460, at + 460)
        add(4, "wait_products", WAIT_PRODUCTS, at + 470, at + 800)
        add(4, "arrive", ARRIVE, at + 850, at + 850, EMPTY)
    return {
        "format": 1, "clock": "multiprocessor", "device": "a card", "clock_ghz": 2.0, "stuck": "",
        "places": [[places.file_hash(QUEUED), line] for line in LINES],
        "launches": [{"place": LINES.index(LAUNCH), "grid": [1, 1, 1], "block": [256, 1, 1], "cluster": [1, 1, 1], "starts_early": False}],
        "blocks": [{"launch": 0, "index": [0, 0, 0], "shift": 0, "events": events}],
    }  # fmt: skip


def stuck_trace() -> dict:
    """The consumer never gives the second slot back, on the emulator."""
    data = gpu_trace()
    data |= {"clock": "logical", "stuck": "block (0,0,0) is stuck"}
    events = [event for event in data["blocks"][0]["events"] if event[3] < 1815 and event[1] != "start"]
    events = [event for event in events if not (event[1] == "arrive" and event[3] > 1000)]
    for event in events:
        if event[1] in ("wait", "expect", "load", "arrive"):
            event[6] = max(-1, (event[3] + 130) // CHUNK - (1 if event[5] == EMPTY and event[1] == "wait" else 0))
        if event[1] == "load":
            event[4] = event[3] + 380
    events.append([0, "wait", LINES.index(WAIT_EMPTY), 1900, trace.NEVER, EMPTY, 1, 0, -1])
    events.append([4, "wait", LINES.index(WAIT_FULL), 1910, trace.NEVER, FULL, 2, 0, -1])
    data["blocks"][0]["events"] = events
    return data


def timeline_of(data: dict) -> tuple[trace.Trace, bars.Timeline]:
    one = trace.read(data)
    return one, bars.timelines(one.launches[0], one.is_logical)[0]


class FileTest(unittest.TestCase):
    def test_a_file_that_is_no_trace_gives_one_line(self):
        good = gpu_trace()
        without = {name: value for name, value in good.items() if name != "places"}
        other_place = copy.deepcopy(good)
        other_place["blocks"][0]["events"][0][2] = 99
        short = copy.deepcopy(good)
        short["blocks"][0]["events"][0].pop()
        for data in ({}, good | {"format": 2}, good | {"clock": "sundial"}, without, other_place, short, good | {"blocks": []}):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "t.json"
                file.write_text(json.dumps(data), encoding="utf-8")
                with self.assertRaises(trace.TraceError) as raised:
                    trace.load(file)
                self.assertNotIn("\n", str(raised.exception))
                self.assertIn(str(file), str(raised.exception))

    def test_text_that_is_no_json_and_a_file_that_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "t.json"
            with self.assertRaisesRegex(trace.TraceError, "No such file"):
                trace.load(file)
            for content in (b"{", b"\xff\xfe", b""):
                file.write_bytes(content)
                with self.assertRaisesRegex(trace.TraceError, "no JSON"):
                    trace.load(file)


class PlacesTest(unittest.TestCase):
    def test_hashes_are_those_of_the_compiler(self):
        # What nvcc 13 made of SourceLocation::current() in lines 18 and 20 of "a.cu" (common/device/source_location.hpp).
        self.assertEqual(places.file_hash("a.cu") << 12 | 18, 1538043922)
        self.assertEqual(places.file_hash("a.cu") << 12 | 20, 1538043924)

    def test_each_source_has_a_hash_of_its_own_and_lines_that_fit(self):
        files = [name for name in places.sources().values()]
        self.assertEqual(len(files), sum(1 for folder in places.ROOT.iterdir() if folder.is_dir() and not folder.name.startswith((".", "build"))
                                         for path in folder.rglob("*") if path.suffix in places.SUFFIXES))
        self.assertLess(max(len(places.text(name)) for name in files), 4096)

    def test_names(self):
        place = lambda line: places.Place(QUEUED, line)  # noqa: E731
        self.assertEqual(places.barrier(place(INIT_FULL)), "full")
        self.assertEqual(places.barrier(place(WAIT_EMPTY)), "empty")
        self.assertEqual(places.barrier(place(ARRIVE)), "empty")
        self.assertEqual(places.kernel(place(LAUNCH)), "queued_products_kernel")
        self.assertEqual(places.function(place(line_of("start_output_from_state<"))), "start_outputs")
        self.assertEqual(places.products(place(line_of("wgmma_commit()", line_of("wgmma_fence(O, s)")))),
                         "start_output_from_state, start_output_from_scores")
        tiles = "common/tile/bulk_tiles.cuh"
        line = next(i + 1 for i, text in enumerate(places.text(tiles)) if "load_panels(tiles.K" in text)
        self.assertEqual(places.tile(places.Place(tiles, line)), "K")

    def test_a_file_is_found_by_any_name_that_compilers_give_it(self):
        for name in (QUEUED, f"../../{QUEUED}", str(places.ROOT / QUEUED)):
            self.assertEqual(places.find(name, 3), places.Place(QUEUED, 3))
        self.assertEqual(places.find(places.file_hash(QUEUED), 3), places.Place(QUEUED, 3))
        self.assertEqual(places.find("/elsewhere/x.cu", 3).file, "/elsewhere/x.cu")


class PhasesTest(unittest.TestCase):
    """What a GPU does not tell."""

    def setUp(self):
        self.trace, self.timeline = timeline_of(gpu_trace())
        self.events = self.timeline.blocks[0].events

    def of(self, kind, warp=None):
        return [event for event in self.events if event.kind == kind and warp in (None, event.warp)]

    def test_arrivals_and_copies_are_counted(self):
        self.assertEqual([event.phase for event in self.of("expect")], list(range(CHUNKS)))
        self.assertEqual([event.phase for event in self.of("load")], list(range(CHUNKS)))
        self.assertEqual([event.phase for event in self.of("arrive")], list(range(CHUNKS)))

    def test_a_wait_is_for_the_last_phase_of_its_parity_that_has_ended(self):
        self.assertEqual([event.phase for event in self.of("wait", 4)], list(range(CHUNKS)))
        self.assertEqual([event.phase for event in self.of("wait", 0)], [-1, *range(CHUNKS - 1)])

    def test_a_wait_ends_because_of_the_copy_or_the_arrival(self):
        for n, wait in enumerate(self.of("wait", 4)):
            self.assertIs(self.timeline.barriers.cause[wait], self.of("load")[n])
            self.assertEqual(self.timeline.barriers.time_of(self.of("load")[n]), n * CHUNK + 400)
        for n, wait in enumerate(self.of("wait", 0)[1:]):
            self.assertIs(self.timeline.barriers.cause[wait], self.of("arrive")[n])

    def test_a_wait_that_passes_at_once_has_no_cause(self):
        self.assertNotIn(self.of("wait", 0)[0], self.timeline.barriers.cause)

    def test_two_arrivals_end_a_phase_of_two(self):
        data = gpu_trace()
        events = data["blocks"][0]["events"]
        events[1][7] = 2  # the count of `empty`
        events += [[event[0] + 1, *event[1:3], event[3] + 20, event[4] + 20, *event[5:]] for event in events if event[1] == "arrive"]
        _, timeline = timeline_of(data)
        arrivals = [event for event in timeline.blocks[0].events if event.kind == "arrive"]
        self.assertEqual([event.phase for event in arrivals], [n for n in range(CHUNKS) for _ in range(2)])
        waits = [event for event in timeline.blocks[0].events if event.kind == "wait" and event.warp == 0]
        self.assertEqual([timeline.barriers.cause[wait].warp for wait in waits[1:]], [5] * (CHUNKS - 1))


    def test_all_lanes_of_an_arrival_count(self):
        data = gpu_trace()
        data["blocks"][0]["events"][1][7] = 32
        for event in data["blocks"][0]["events"]:
            if event[1] == "arrive":
                event[7] = 32
        _, timeline = timeline_of(data)
        self.assertEqual([event.phase for event in timeline.blocks[0].events if event.kind == "arrive"], list(range(CHUNKS)))


class BarsTest(unittest.TestCase):
    def setUp(self):
        self.trace, self.timeline = timeline_of(gpu_trace())

    def test_roles(self):
        self.assertEqual([role.warps for role in self.timeline.roles], [[0], [4]])
        self.assertEqual(self.timeline.roles[1].does, "scores")
        self.assertIs(self.timeline.chain, self.timeline.roles[1])

    def test_the_bars_of_a_role_are_its_time_without_a_gap(self):
        for role in self.timeline.roles:
            self.assertEqual(role.bars[0].begin, role.begin)
            self.assertEqual(role.bars[-1].end, role.end)
            for before, after in zip(role.bars, role.bars[1:]):
                self.assertEqual(before.end, after.begin)

    def test_products_are_under_way_from_their_start_to_the_wait(self):
        self.assertEqual([(bar.begin, bar.end) for bar in self.timeline.roles[1].products],
                         [(n * CHUNK + 400, n * CHUNK + 800) for n in range(CHUNKS)])
        self.assertEqual({bar.name for bar in self.timeline.roles[1].products}, {"start_scores"})

    def test_chunks(self):
        starts, line = self.timeline.chunk_starts()
        self.assertEqual(len(starts), CHUNKS)
        self.assertEqual(self.timeline.period, CHUNK)
        self.assertEqual(line.file, QUEUED)


class SummaryTest(unittest.TestCase):
    def setUp(self):
        self.trace, self.timeline = timeline_of(gpu_trace())

    def test_shares_are_the_whole_time(self):
        share = summary.shares(self.timeline.roles[1])
        self.assertEqual(share.total, sum(share.by_kind.values()))
        self.assertEqual(share.by_kind["products"], CHUNKS * 330)
        self.assertEqual(share.by_kind["waiting"], CHUNKS * 460)
        self.assertEqual(sum(share.by_wait.values()), share.by_kind["waiting"])
        self.assertEqual(share.under_way, CHUNKS * 400)

    def test_the_chain_is_as_long_as_its_chunks(self):
        begin, end, count = summary.steady(self.timeline)
        parts = summary.chain(self.timeline, begin, end)
        self.assertEqual(end - begin, count * CHUNK)
        self.assertAlmostEqual(sum(parts.values()) / (end - begin), 1, delta=0.02)
        self.assertEqual(parts["warp 4", "products"], count * 330)
        self.assertGreaterEqual(parts["warp 0", "copy to full"], count * 400)

    def test_text(self):
        text = summary.text(self.timeline, self.trace)
        self.assertIn("from start to start of a chunk", text)
        self.assertIn(f"14_queued_products.cu:{WAIT_FULL}", text)
        self.assertNotIn("~", text)  # a GPU's clocks

    def test_the_emulators_clocks_are_marked(self):
        one, timeline = timeline_of(stuck_trace())
        self.assertIn("~", summary.text(timeline, one))


class PerfettoTest(unittest.TestCase):
    """The format that Chrome and Perfetto read: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU"""

    def check(self, data):
        one, timeline = timeline_of(data)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "p.json"
            perfetto.write(one, [timeline], file)
            document = json.loads(file.read_text(encoding="utf-8"))
        spans, flows, names = defaultdict(list), defaultdict(list), set()
        for event in document["traceEvents"]:
            self.assertIn(event["ph"], ("X", "M", "s", "f"))
            self.assertIsInstance(event["pid"], int)
            if event["ph"] == "M":
                names.add((event["pid"], event.get("tid")))
                continue
            self.assertIsInstance(event["tid"], int)
            self.assertGreaterEqual(event.get("dur", 0), 0)
            if event["ph"] == "X":
                spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
            else:
                flows[event["id"]].append(event)
        for thread, its in spans.items():
            self.assertIn(thread, names)
            open_until = []  # spans of a thread nest: none ends within another one
            for begin, end, name in sorted(its, key=lambda span: (span[0], -span[1])):
                while open_until and open_until[-1] <= begin + 1e-9:
                    open_until.pop()
                self.assertTrue(not open_until or end <= open_until[-1] + 1e-9, (thread, name))
                open_until.append(end)
        for first, last in flows.values():
            self.assertEqual((first["ph"], last["ph"]), ("s", "f"))
            self.assertLessEqual(first["ts"], last["ts"])
        return spans, flows

    def test_a_gpus(self):
        spans, flows = self.check(gpu_trace())
        self.assertEqual(len(flows), 2 * CHUNKS - 1)
        self.assertAlmostEqual(max(end for its in spans.values() for _, end, _ in its), (CHUNKS - 1) * 0.5 + 0.425)  # us at 2 GHz

    def test_a_deadlocks(self):
        self.check(stuck_trace())


class PictureTest(unittest.TestCase):
    def check(self, data, chunks=2):
        one, timeline = timeline_of(data)
        drawn = picture.draw(timeline, one, "test", "a title", ["a note"], chunks)
        root = ElementTree.fromstring(drawn.svg())
        space = "{http://www.w3.org/2000/svg}"
        words = [text for text in root.iter(f"{space}text")]
        for text in words:
            size = 12 if "small" in text.get("class") else 14
            width = len(text.text) * size * (0.61 if "mono" in text.get("class") else 0.56)
            x, y = float(text.get("x")), float(text.get("y"))
            left = x - width / 2 if "middle" in text.get("class") else x
            self.assertTrue(0 <= left and left + width <= drawn.width + 8 and size <= y <= drawn.height, text.text)
        for box in root.iter(f"{space}rect"):
            x, y, width, height = (float(box.get(name)) for name in ("x", "y", "width", "height"))
            self.assertTrue(0 <= x and x + width <= drawn.width and 0 <= y and y + height <= drawn.height)
        return [text.text for text in words], root

    def test_the_start_and_the_steady_state(self):
        words, root = self.check(gpu_trace())
        self.assertIn("the start, clocks", words)
        self.assertIn("2 chunks in the steady state, clocks", words)
        self.assertIn(f"full :{WAIT_FULL}", words)
        self.assertIn("scores", words)
        self.assertGreaterEqual(len(root.findall("{http://www.w3.org/2000/svg}polyline")), 4)  # arrows

    def test_a_deadlock_shows_what_all_wait_for(self):
        words, _ = self.check(stuck_trace())
        self.assertIn("where all wait, clocks of the emulator", words)
        self.assertTrue(any(text.startswith("waits for ever: full") for text in words), words)
        self.assertTrue(any(text.startswith("waits for ever: empty") for text in words), words)

    def test_more_chunks_than_there_are(self):
        self.check(gpu_trace(), chunks=50)


if __name__ == "__main__":
    unittest.main()
