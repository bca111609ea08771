"""The drawings of chapter 06, scans."""

from math import log10

from svg import Picture


def number(value: float) -> str:
    """At most five characters."""
    return f"{value:.4g}"


def run_value(begin: int, end: int) -> float:
    """What steps `begin` to `end` of y = y / 2 + t make of 0."""
    y = 0.0
    for t in range(begin, end + 1):
        y = y / 2 + t
    return y


def maps_as_lines() -> Picture:
    p = Picture(
        "maps_as_lines", 760, 300, "Steps as lines: a slope and an offset",
        "Left the maps y to y / 2 and y to y + 1 as lines over y from 0 to 8. Right their two compositions: halve then add is "
        "y / 2 + 1 and takes 8 to 5; add then halve is y / 2 + 1 / 2 and takes 8 to 4.5. Each line is two numbers, a slope and "
        "an offset.",
    )  # fmt: skip
    for side in range(2):
        x0, y0, unit = 44 + 390 * side, 236, 22
        p.text(x0 + 140, 24, ("two steps", "one after the other")[side], "middle bold")
        p.arrow((x0, y0), (x0 + 8.9 * unit, y0))
        p.arrow((x0, y0), (x0, y0 - 8.9 * unit))
        for tick in (4, 8):
            p.line(x0 + tick * unit, y0, x0 + tick * unit, y0 + 5)
            p.text(x0 + tick * unit, y0 + 19, str(tick), "middle small")
            p.line(x0 - 5, y0 - tick * unit, x0, y0 - tick * unit)
            p.text(x0 - 8, y0 - tick * unit + 4, str(tick), "end small")
        p.text(x0 + 9.2 * unit, y0 + 4, "y", "small")
        lines = (
            [(0.5, 0, "halve: (1/2, 0)", 8, ""), (1, 1, "add 1: (1, 1)", 7.6, "dashed")]
            if side == 0
            else [(0.5, 1, "halve, then add: (1/2, 1)", 8, ""), (0.5, 0.5, "add, then halve: (1/2, 1/2)", 8, "dashed")]
        )
        for i, (slope, offset, name, end, dash) in enumerate(lines):
            p.line(x0, y0 - offset * unit, x0 + end * unit, y0 - (slope * end + offset) * unit, f"line {dash}".strip())
            at = y0 - (slope * end + offset) * unit
            where = at + 4 if side == 0 else at - 4 + 16 * i
            if side == 1:
                p.text(x0 + end * unit + 6, where, f"8 -> {slope * 8 + offset:g}", "small mono")
                p.line(x0 + 20, 58 + 20 * i, x0 + 46, 58 + 20 * i, f"line {dash}".strip())
                p.text(x0 + 54, 62 + 20 * i, name, "small")
            else:
                p.text(x0 + end * unit + 6, where, name, "small")
    p.text(44, 284, "A map is two numbers, (factor, what it adds); so is every composition, and the order counts.", "small soft")
    return p


def hillis_steele() -> Picture:
    p = Picture(
        "hillis_steele", 770, 340, "Hillis and Steele's rounds over eight steps",
        "Four rows of eight maps. In the first round each takes the one before it, in the second the one two places before, in "
        "the third the one four places before; after that each stands for all steps from 1 to its own. With gates of 1/2 and "
        "inputs t the last row is 1, 2.5, 4.25, 6.125, 8.063, 10.03, 12.02 and 14.01.",
    )  # fmt: skip
    first = [list(range(1, 9))]
    for d in (1, 2, 4):
        first.append([first[-1][i - d] if i >= d else first[-1][i] for i in range(8)])
    for row in range(4):
        y = 12 + 92 * row
        p.text(14, y + 24, ("steps", "+ 1", "+ 2", "+ 4")[row], "small")
        for i in range(8):
            x = 74 + 86 * i
            begin = first[row][i]
            p.labelled(
                x,
                y,
                62,
                40,
                [f"{begin}-{i + 1}" if begin <= i else str(i + 1), number(run_value(begin, i + 1))],
                "c" if begin == 1 else "a",
                "middle small mono",
            )
            if row < 3:
                d = 1 << row
                p.arrow((x + 31, y + 40), (x + 31, y + 92), kind="faint" if i < d else "line")
                if i + d < 8:
                    p.arrow((x + 42, y + 40), (x + 86 * d + 12, y + 92))
    return p


def blelloch() -> Picture:
    p = Picture(
        "blelloch", 780, 410, "Blelloch's tree over eight steps, up and down",
        "Left a binary tree: eight steps as leaves, their pairs 1-2, 3-4, 5-6 and 7-8 above them, then 1-4 and 5-8, then the root "
        "1-8, which makes 14.01 of 0. Right the same tree on the way down: the root is the identity; a left child gets what its "
        "parent has, a right child that followed by the left child of the way up; the leaves have id, 1, 1-2, up to 1-7: what "
        "comes before them.",
    )  # fmt: skip
    up = [[(1, 8)], [(1, 4), (5, 8)], [(1, 2), (3, 4), (5, 6), (7, 8)], [(i, i) for i in range(1, 9)]]
    down = [[(1, 0)], [(1, 0), (1, 4)], [(1, 0), (1, 2), (1, 4), (1, 6)], [(1, i) for i in range(8)]]
    for side, tree in enumerate((up, down)):
        x0 = 10 + 395 * side
        p.text(x0 + 185, 22, ("up: compose neighbours", "down: what comes before")[side], "middle bold")
        for level, nodes in enumerate(tree):
            width = 370 / len(nodes)
            for i, (begin, end) in enumerate(nodes):
                x, y = x0 + width * (i + 0.5), 60 + 92 * level
                if level < 3:
                    for child in (0, 1):
                        to = (x0 + width * (i + 0.25 + 0.5 * child), y + 92)
                        if side == 0:
                            p.arrow((to[0], to[1] - 19), (x + (child * 2 - 1) * 8, y + 19))
                        else:
                            p.arrow(
                                (x + (child * 2 - 1) * 8, y + 19),
                                (to[0], to[1] - 19),
                                kind="line" if child else "line dashed",
                            )
                name = "id" if end == 0 else f"{begin}-{end}" if begin < end else str(end)
                kind = "d" if end == 0 else "a" if side == 0 else "c"
                p.labelled(x - 22, y - 19, 44, 38, [name, number(run_value(begin, end))], kind, "middle small mono")
    p.text(10, 396, "dashed: handed on as it is; solid: followed by the left child of the way up", "small soft")
    return p


def bank_padding() -> Picture:
    p = Picture(
        "bank_padding", 760, 200, "Where elements of the tree that are 32 apart lie, with and without padding",
        "Two rows of 32 banks. Above, elements 31, 63, 95 and so on all lie in bank 31, which answers them one after the other. "
        "Below, with one unused number after each 32, element 31 lies in bank 31, 63 in bank 0, 95 in bank 1 and so on: each in "
        "its own bank.",
    )  # fmt: skip
    for row in range(2):
        y = 34 + 92 * row
        p.text(10, y - 12, ("element i at i: 32 requests of one bank", "element i at i + i / 32: one request of each bank")[row], "small")
        for bank in range(32):
            x = 10 + 23 * bank
            hit = row == 1 or bank == 31
            p.box(x, y, 21, 24, ("d" if row == 0 else "c") if hit else "paper", 2)
            if bank % 4 == 3 or bank == 0:
                p.text(x + 10.5, y + 40, str(bank), "middle small soft")
        if row == 0:
            p.text(10 + 23 * 32 - 2, y - 12, "31, 63, 95, 127, ... all here", "end small")
        else:
            for bank, name in ((31, "31"), (0, "63"), (1, "95")):
                p.text(10 + 23 * bank + 10.5, y + 16, name, "middle small mono")
    p.text(10, 192, "the 32 banks of shared memory", "small soft")
    return p


def scan_levels() -> Picture:
    p = Picture(
        "scan_levels", 780, 400, "warp_shuffle: three levels of one tile",
        "A tile of 1024 steps. A thread composes its 4 steps in a loop. The 32 lanes of a warp scan the 32 maps in five rounds of "
        "shuffles. The totals of the 8 warps pass through shared memory, and every warp scans them. Then y goes down again: past "
        "the warps below, past the lanes below, and through the 4 steps of the thread.",
    )  # fmt: skip
    p.text(10, 20, "up", "bold")
    levels = [
        (46, "a thread loops over 4 steps", "registers"),
        (116, "a warp scans 32 lanes in 5 rounds of shuffles", "registers"),
        (202, "every warp scans the totals of 8 warps", "shared memory, one barrier"),
    ]
    for y, name, where in levels:
        p.text(466, y - 8, name, "small bold")
        p.text(466, y + 9, where, "small soft")
    for lane in range(6):
        x = 14 + 68 * lane
        for step in range(4):
            p.box(x + 15 * step, 32, 13, 22, "a", 2)
        p.arrow((x + 28, 54), (x + 28, 100))
        p.labelled(x + 4, 100, 48, 26, [("lane 0", "1", "2", "3", "...", "31")[lane]], "b")
        if lane < 5:
            p.arrow((x + 52, 113), (x + 72, 113))
    p.arrow((14 + 68 * 5 + 28, 126), (14 + 68 * 5 + 28, 156), (39, 156), (39, 186))
    for warp in range(8):
        x = 22 + 55 * warp if warp else 14
        p.labelled(x, 186, 38 if warp else 50, 26, [str(warp) if warp else "warp 0"], "c")
        if warp < 7:
            p.arrow((x + (38 if warp else 50), 199), (77 + 55 * warp, 199))
    p.line(10, 240, 770, 240, "faint")
    p.text(10, 262, "and down: y before ...", "bold")
    boxes = [
        ("... the tile", "in every thread", "d"),
        ("... the warp", "past the warps below", "c"),
        ("... the lane", "past the lanes below", "b"),
        ("each step", "loop: y_t = a_t y + x_t", "a"),
    ]
    for i, (name, how, kind) in enumerate(boxes):
        x = 14 + 192 * i
        p.labelled(x, 282, 164, 44, [name, how], kind)
        if i < 3:
            p.arrow((x + 164, 304), (x + 192, 304))
    p.arrow((672, 326), (672, 360), (96, 360), (96, 326))
    p.text(384, 380, "y after the tile's last step comes before the next tile", "middle small soft")
    return p


def look_back() -> Picture:
    p = Picture(
        "look_back", 780, 260, "Look-back: two words per tile",
        "Eight tiles in a row, each with two words: its own map, and the map of the sequence up to its end. All have "
        "published their own maps, tiles 0 to 2 also the map up to their ends. Tile 7 looks at 6, 5, 4 and 3, whose own maps it "
        "composes, and stops at 2, where it finds y.",
    )  # fmt: skip
    p.text(10, 76, "own map", "small")
    p.text(10, 120, "up to its end", "small")
    for tile in range(8):
        x = 100 + 84 * tile
        p.text(x + 34, 40, f"tile {tile}", "middle small bold")
        own, end = True, tile < 3
        taken_own, taken_end = 3 <= tile <= 6, tile == 2
        p.labelled(x, 54, 68, 34, ["there" if own else "not yet"], "b" if taken_own else "a" if own else "paper")
        p.labelled(x, 98, 68, 34, ["there" if end else "not yet"], "c" if taken_end else "a" if end else "paper")
    right = 100 + 84 * 7 + 34
    p.line(right, 132, right, 168)
    for tile in (6, 5, 4, 3, 2):
        p.line(100 + 84 * tile + 34, 168, 100 + 84 * (tile + 1) + 34, 168)
    for tile in (6, 5, 4, 3):
        p.line(100 + 84 * tile + 64, 168, 100 + 84 * tile + 64, 132)
        p.arrow((100 + 84 * tile + 64, 98), (100 + 84 * tile + 64, 89))
        p.line(100 + 84 * tile + 64, 132, 100 + 84 * tile + 64, 98, "faint dashed")
    p.arrow((100 + 84 * 2 + 34, 168), (100 + 84 * 2 + 34, 134))
    p.text(100 + 84 * 2 + 34, 188, "y at its end: stop", "middle small")
    p.text(100 + 84 * 4 + 76, 188, "not yet, so take the own map and go on", "middle small")
    p.text(right, 188, "tile 7 looks", "middle small")
    p.text(390, 226, "y before tile 7 = own map of 6 after 5 after 4 after 3, applied to y at the end of 2", "middle")
    p.text(390, 248, "Nothing waits for the ends of tiles 3 to 6, only for their inputs.", "middle small soft")
    return p


def look_back_waits() -> Picture:
    p = Picture(
        "look_back_waits", 780, 420, "Who waits for whom: a chain of tiles, and two ways to look back",
        "Time runs to the right. Above, each tile waits until the tile before it has published the map up to its end: the steps "
        "of a stair, one trip to the cache each. In the middle, single_pass: all tiles load at once and publish their own maps; "
        "then one thread looks at one tile per trip. Below, warp_look_back: the same, but one trip shows 32 tiles.",
    )  # fmt: skip

    def span(x, y, width, name, kind):
        p.labelled(x, y, width, 22, [name] if name else [], kind)

    p.text(10, 22, "each tile waits for the tile before it: a chain of L / 1024 trips", "bold")
    for tile in range(5):
        y, x = 34 + 24 * tile, 80
        p.text(10, y + 16, f"tile {tile}", "small")
        span(x, y, 120, "loads", "a")
        start = 224 + 84 * (tile - 1) if tile else 200
        if tile:
            p.line(200, y + 11, start, y + 11, "faint dashed")
            span(start, y, 60, "trip", "d")
        span(start + (60 if tile else 0), y, 24, "y", "c")
        if tile < 4:
            end = start + (84 if tile else 24)
            p.line(end, y + 11, end, y + 24)
    p.text(10, 186, "single_pass: own maps are there at once, a look is one tile per trip", "bold")
    for row, tile in enumerate((69, 70)):
        y = 198 + 24 * row
        p.text(10, y + 16, f"tile {tile}", "small")
        span(80, y, 120, "loads", "a")
        span(200, y, 40, "own", "b")
        for trip in range(7):
            span(240 + 50 * trip, y, 50, f"{tile - 1 - trip}" if trip < 6 else "...", "d")
        span(590, y, 24, "y", "c")
    p.text(630, 214, "thread 0 looks,", "small soft")
    p.text(630, 230, "255 threads wait", "small soft")
    p.text(10, 284, "warp_look_back: 32 tiles per trip", "bold")
    for row, tile in enumerate((69, 70)):
        y = 296 + 24 * row
        p.text(10, y + 16, f"tile {tile}", "small")
        span(80, y, 120, "loads", "a")
        span(200, y, 40, "own", "b")
        span(240, y, 100, f"{tile - 32} to {tile - 1}", "d")
        span(340, y, 24, "y", "c")
    p.text(380, 312, "32 lanes load, a warp scan composes;", "small soft")
    p.text(380, 328, "lanes older than the nearest end drop out", "small soft")
    p.arrow((80, 366), (760, 366))
    p.text(760, 384, "time", "end small")
    for i, (kind, name) in enumerate((("a", "inputs under way"), ("b", "own map published"), ("d", "a trip to the cache"), ("c", "y known, end published"))):
        x = (80, 236, 398, 560)[i]
        p.box(x, 392, 14, 14, kind, 2)
        p.text(x + 20, 404, name, "small")
    return p


def scan_turns() -> Picture:
    p = Picture(
        "scan_turns", 780, 270, "wide_tiles: the 512 steps of a warp in four turns",
        "Four rows, one per turn, of 128 steps each. Lane 0 has steps 0 to 3 of the first row, lane 1 steps 4 to 7, lane 31 steps "
        "124 to 127; in the next row the same lanes have steps 128 to 131 and so on. The lanes of a row are scanned by shuffles; "
        "the end of a row goes to the start of the next.",
    )  # fmt: skip
    names = ["lane 0", "lane 1", "lane 2", "...", "lane 30", "lane 31"]
    for i, name in enumerate(names):
        p.text(90 + 106 * i + 48, 24, name, "middle small bold")
    for turn in range(4):
        y = 36 + 52 * turn
        p.text(10, y + 19, f"turn {turn}", "small")
        for i, lane in enumerate((0, 1, 2, None, 30, 31)):
            x = 90 + 106 * i
            if lane is None:
                p.text(x + 48, y + 19, "...", "middle")
            else:
                first = 128 * turn + 4 * lane
                p.labelled(x, y, 96, 28, [f"{first} to {first + 3}"], "a", "middle small mono")
            if i < 5:
                p.arrow((x + 96, y + 14), (x + 106, y + 14))
        if turn < 3:
            p.arrow((90 + 106 * 5 + 48, y + 28), (90 + 106 * 5 + 48, y + 40), (138, y + 40), (138, y + 52))
    p.text(390, 258, "A box is 16 bytes of x and 16 of g, copied, read and used by one lane: no barrier, no bank conflict.", "middle small soft")
    return p


def channel_lanes() -> Picture:
    p = Picture(
        "channel_lanes", 780, 330, "Lanes along time, or lanes along channels",
        "Left D = 1: a sequence is a row in memory; lanes lie along it and exchange maps by shuffles. Right D > 1: x is a table of "
        "steps by channels, a row of channels lies together in memory; lane l has channel l of each row, warp 0 has the first 16 "
        "steps, warp 1 the next 16, and only the totals of warps meet.",
    )  # fmt: skip
    p.text(170, 22, "D = 1: lanes along time", "middle bold")
    for row in range(3):
        y = 60 + 56 * row
        p.text(10, y + 19, ("lane", "", "")[row], "small")
        for lane in range(8):
            x = 50 + 32 * lane
            p.labelled(x, y, 28, 28, [str(lane) if lane < 6 else ("..." if lane == 6 else "31")], "ab"[row % 2] if row < 1 else "ab"[row % 2])
        if row < 2:
            for lane in range(8 - (1 << row)):
                p.arrow((50 + 32 * lane + 14, y + 28), (50 + 32 * (lane + (1 << row)) + 10, y + 56), kind="faint")
    p.arrow((50, 48), (306, 48))
    p.text(306, 42, "time, and memory", "end small soft")
    p.lines(170, 222, ["lanes must exchange maps: five rounds", "in a warp"], "middle small")
    x0 = 420
    p.text(x0 + 170, 22, "D > 1: lanes along channels", "middle bold")
    p.arrow((x0, 48), (x0 + 256, 48))
    p.text(x0 + 256, 42, "channels, and memory", "end small soft")
    for warp in range(3):
        y = 60 + 72 * warp
        kind = "acb"[warp]
        p.box(x0, y, 256, 56, kind)
        for lane in range(1, 8):
            p.line(x0 + 32 * lane, y, x0 + 32 * lane, y + 56, "faint")
        for lane in range(8):
            x = x0 + 32 * lane + 16
            p.arrow((x, y + 6), (x, y + 50))
        p.lines(x0 + 266, y + 20, [("warp 0", "warp 1", "...")[warp], ("16 steps", "16 steps", "8 warps")[warp]], "small")
    p.arrow((x0 - 14, 60), (x0 - 14, 260))
    p.text(x0 - 22, 160, "time", "end small soft")
    for lane in range(8):
        p.text(x0 + 32 * lane + 16, 284, str(lane) if lane < 6 else ("..." if lane == 6 else "31"), "middle small")
    p.text(x0 - 22, 284, "lane", "end small")
    p.text(x0 + 128, 308, "lanes never meet; the totals of warps do", "middle small")
    return p


def scan_or_chunk() -> Picture:
    p = Picture(
        "scan_or_chunk", 780, 300, "A step of one head of simple GLA: time of its operations and of its bytes",
        "Two bars for each form, in nanoseconds on a logarithmic scale, at the rates of an H200. Loop: operations 1.7, bytes 0.5. "
        "Chunk of 64: 0.13 and 0.24. scan_states: 2.2 and 62. scan_tiles: 2.2 and 1.7. scan_fused: 2.2 and 1.2.",
    )  # fmt: skip
    rows = [("loop", 1.7, 0.5), ("chunk, tensor cores", 0.13, 0.24), ("scan_states", 2.2, 62), ("scan_tiles", 2.2, 1.7), ("scan_fused", 2.2, 1.2)]
    left, width, low, high = 170, 540, 0.1, 100

    def at(ns):
        return left + width * (log10(ns) - log10(low)) / (log10(high) - log10(low))

    for i, (name, operations, moved) in enumerate(rows):
        y = 42 + 46 * i
        p.text(left - 10, y + 20, name, "end small")
        for k, (ns, kind) in enumerate(((operations, "b"), (moved, "a"))):
            p.box(left, y + 16 * k, at(ns) - left, 15, kind, 2)
            p.text(at(ns) + 6, y + 16 * k + 12, f"{ns:g}", "small")
    for ns in (0.1, 1, 10, 100):
        p.line(at(ns), 36, at(ns), 272, "faint dashed")
        p.text(at(ns), 290, f"{ns:g} ns", "middle small soft")
    p.box(left, 10, 14, 14, "b", 2)
    p.text(left + 20, 22, "operations", "small")
    p.box(left + 120, 10, 14, 14, "a", 2)
    p.text(left + 140, 22, "bytes through memory", "small")
    p.text(770, 22, "Dk = Dv = 128, at the rates of an H200", "end small soft")
    return p


def states_look_back() -> Picture:
    p = Picture(
        "states_look_back", 780, 372, "scan_fused: a tile of 64 steps looks back with states in place of numbers",
        "Three tiles. Each adds up its own sum H from its k and v, with the decay of the tile, and publishes both. Tile n - 2 has "
        "also published the state at its end, tile n - 1 not yet. Tile n takes that state, decays it by tile n - 1 and adds the own "
        "sum of tile n - 1: the state before tile n. From it and its own sum follows the state at its end, which it publishes, and "
        "the walk over its 64 steps, which computes o.",
    )  # fmt: skip
    for i, name in enumerate(("tile n - 2", "tile n - 1", "tile n")):
        p.text(148 + 210 * i + 88, 22, name, "middle bold")
    rows = ("1  own sum, decay", "2  look back", "3  at its end", "4  walk: o")
    for row, name in enumerate(rows):
        p.text(10, 64 + 80 * row, name, "small bold")
    p.lines(10, 82, ["k and v, once"], "small soft")
    p.lines(10, 322, ["q, k and v, again"], "small soft")

    def x_of(tile):
        return 148 + 210 * tile

    for tile in range(3):
        p.labelled(x_of(tile), 38, 176, 40, ["H, decay: published"], "b")
    p.labelled(x_of(0), 198, 176, 40, ["S: published"], "c")
    p.labelled(x_of(1), 198, 176, 40, ["S: not yet"], "paper")
    p.labelled(x_of(2), 118, 176, 40, ["S before tile n"], "d")
    p.labelled(x_of(2), 198, 176, 40, ["S = decay S + H: published"], "c")
    p.labelled(x_of(2), 278, 176, 40, ["S = exp(g_t) S + k_t^T v_t,", "o_t = scale q_t S"], "a")
    p.arrow((x_of(0) + 88, 198), (x_of(0) + 88, 138), (x_of(2), 138))
    p.arrow((x_of(1) + 88, 78), (x_of(1) + 88, 138))
    p.text(x_of(1) + 96, 112, "decay S, add H", "small")
    p.arrow((x_of(2) + 60, 158), (x_of(2) + 60, 198))
    p.line(x_of(2) + 176, 58, x_of(2) + 194, 58)
    p.arrow((x_of(2) + 194, 58), (x_of(2) + 194, 218), (x_of(2) + 176, 218))
    p.line(x_of(2), 148, x_of(2) - 14, 148)
    p.arrow((x_of(2) - 14, 148), (x_of(2) - 14, 298), (x_of(2), 298))
    p.text(10, 362, "A state is 32 columns in the registers of a block; what is published lies in device memory.", "small soft")
    return p


def map_tree() -> Picture:
    p = Picture(
        "map_tree", 780, 400, "The tree of scan_affine over six leaves",
        "Up: the maps of leaves 0 and 1 become the map 0-1, those of 2 and 3 the map 2-3, and these two the map 0-3. Leaves 4 and "
        "5 end the sequence, so their composition is not needed. Down: the state before leaf 4 is the map 0-3 applied to S_0; the "
        "state before leaf 2 is 0-1 applied to it; those before 1, 3 and 5 follow from one leaf each. Then all leaves are walked.",
    )  # fmt: skip

    def x_of(leaf):
        return 146 + 112 * leaf

    p.text(10, 39, "leaves: maps", "small")
    for leaf in range(6):
        p.labelled(x_of(leaf) - 30, 20, 60, 30, [str(leaf)], "a" if leaf < 5 else "paper", "middle mono")
    p.text(10, 99, "up", "small bold")
    for first in (0, 2):
        x = x_of(first + 1)
        p.arrow((x_of(first) + 10, 50), (x - 12, 80))
        p.arrow((x, 50), (x, 80))
        p.labelled(x - 30, 80, 60, 30, [f"{first}-{first + 1}"], "a", "middle mono")
    p.arrow((x_of(1) + 20, 110), (x_of(3) - 14, 140))
    p.arrow((x_of(3), 110), (x_of(3), 140))
    p.labelled(x_of(3) - 30, 140, 60, 30, ["0-3"], "a", "middle mono")
    p.lines(x_of(4) + 50, 92, ["the maps of 5 and 4-5 are not needed:", "nothing comes after them"], "middle small soft")
    p.line(10, 186, 770, 186, "faint")
    p.text(10, 219, "down: states", "small bold")
    p.labelled(x_of(0) - 30, 200, 60, 30, ["S_0"], "c", "middle mono")
    p.labelled(x_of(4) - 44, 200, 88, 30, ["before 4"], "c")
    p.arrow((x_of(0) + 30, 210), (x_of(4) - 44, 210))
    p.text(x_of(2), 205, "0-3", "middle small mono")
    p.labelled(x_of(2) - 44, 254, 88, 30, ["before 2"], "c")
    p.arrow((x_of(0) + 14, 230), (x_of(0) + 14, 262), (x_of(2) - 44, 262))
    p.text(x_of(1) + 10, 257, "0-1", "middle small mono")
    for leaf, y in ((1, 308), (3, 308), (5, 308)):
        p.labelled(x_of(leaf) - 44, y, 88, 30, [f"before {leaf}"], "c")
        source_bottom = {0: 230, 2: 284, 4: 230}[leaf - 1]
        p.arrow((x_of(leaf - 1), source_bottom), (x_of(leaf - 1), 323), (x_of(leaf) - 44, 323))
        p.text(x_of(leaf - 1) + 22, 317, str(leaf - 1), "small mono")
    p.text(10, 378, "walk", "small bold")
    for leaf in range(6):
        p.labelled(x_of(leaf) - 44, 360, 88, 30, ["o of its steps"], "b")
    return p


def decode_tokens() -> Picture:
    p = Picture(
        "decode_tokens", 780, 220, "A prompt at once, then a token at a time",
        "Left the prompt: q, k and v of all its tokens go into the dispatch of a chapter, which gives o of all tokens and the state "
        "S of each head. Right one kernel per token: it reads S and q, k, v of one token, and writes o and the next S in its place.",
    )  # fmt: skip
    p.text(130, 22, "prefill: the prompt", "middle bold")
    for i in range(8):
        p.box(22 + 27 * i, 40, 24, 24, "a", 2)
        p.box(22 + 27 * i, 166, 24, 24, "b", 2)
    p.text(130, 208, "o of all tokens", "middle small")
    p.arrow((130, 64), (130, 90))
    p.labelled(22, 90, 213, 44, ["dispatch of chapter 02 to 05:", "chunks on tensor cores"], "paper")
    p.arrow((130, 134), (130, 164))
    p.arrow((235, 112), (300, 112))
    p.text(520, 22, "step: one kernel per token", "middle bold")
    for i in range(3):
        x = 300 + 160 * i
        p.labelled(x, 92, 50, 40, ["S"], "c", "middle")
        p.arrow((x + 50, 112), (x + 76, 112))
        p.labelled(x + 76, 92, 56, 40, ["step"], "paper")
        p.box(x + 92, 40, 24, 24, "a", 2)
        p.arrow((x + 104, 64), (x + 104, 92))
        p.arrow((x + 104, 132), (x + 104, 164))
        p.box(x + 92, 166, 24, 24, "b", 2)
        if i < 2:
            p.arrow((x + 132, 112), (x + 160, 112))
    p.text(764, 117, "...", "middle")
    p.text(404, 208, "o, the next token's input", "middle small")
    for i in range(2):
        x = 300 + 160 * i
        p.arrow((x + 116, 178), (x + 146, 178), (x + 146, 52), (x + 250, 52), kind="faint dashed")
    return p


def decode_loads() -> Picture:
    p = Picture(
        "decode_loads", 780, 300, "A thread's rows of the state over time: step, and step_in_registers",
        "Time runs to the right. In step a thread loads four rows, waits, computes and stores them, then loads the next four: memory "
        "is idle while it waits. In step_in_registers it starts the loads of all its rows at once, waits once, then computes and "
        "stores row after row.",
    )  # fmt: skip
    p.text(10, 22, "step: 128 rows per thread, a few at a time", "bold")
    for group in range(3):
        x = 60 + 206 * group
        for row in range(4):
            y = 36 + 18 * row
            p.box(x + 6 * row, y, 118, 15, "a", 2)
            p.box(x + 130 + 18 * row, y, 16, 15, "b", 2)
            p.box(x + 148 + 18 * row, y, 12, 15, "c", 2)
    p.text(10, 52, "rows", "small")
    p.text(768, 60, "... 32 times", "end small")
    p.text(10, 146, "step_in_registers: 8 float4 per thread, all under way before the first wait", "bold")
    for row in range(8):
        y = 158 + 14 * row
        p.box(60 + 6 * row, y, 126, 12, "a", 2)
        p.box(236 + 18 * row, y, 16, 12, "b", 2)
        p.box(254 + 18 * row, y, 14, 12, "c", 2)
    p.text(10, 172, "rows", "small")
    p.text(430, 200, "q, k and the gates have come to shared memory", "small soft")
    p.text(430, 216, "while S was under way; then sums over rows by", "small soft")
    p.text(430, 232, "lanes and shared memory", "small soft")
    p.arrow((60, 278), (760, 278))
    p.text(760, 294, "time", "end small")
    for i, (kind, name) in enumerate((("a", "load under way"), ("b", "S = gate S + k u, o += q S"), ("c", "store"))):
        x = (60, 190, 386)[i]
        p.box(x, 284, 12, 12, kind, 2)
        p.text(x + 18, 295, name, "small")
    return p


def devices_time() -> Picture:
    p = Picture(
        "devices_time", 780, 480, "Four devices over time: relay, all_gather, states_alone, head_by_head",
        "Time runs to the right, in units of a pass over a quarter of the positions. relay: device 1 starts when device 0 has ended, "
        "and so on, four passes. all_gather: devices 0 to 2 make a first pass at once, exchange maps, and devices 1 to 3 make a "
        "second: two passes. states_alone: the first is half a pass, and all make the second: one and a half. head_by_head: eight "
        "heads pass through the devices as through a pipeline: eleven eighths.",
    )  # fmt: skip
    unit, left = 136, 200

    def bar(y, start, length, name, kind):
        p.labelled(left + unit * start, y, unit * length, 20, [name] if name else [], kind)

    def group(y, name):
        p.text(10, y + 16, name, "small bold")
        for n in range(4):
            p.text(left - 10, y + 16 + 24 * n, f"device {n}", "end small soft")

    exchange = 0.12
    group(16, "relay")
    for n in range(4):
        bar(16 + 24 * n, n, 1, "pass", "a")
        if n < 3:
            p.arrow((left + unit * (n + 1), 36 + 24 * n), (left + unit * (n + 1), 40 + 24 * n))
    group(126, "all_gather")
    for n in range(4):
        y = 126 + 24 * n
        if n < 3:
            bar(y, 0, 1, "pass: o, map" if n == 0 else "pass: map", "a" if n == 0 else "b")
        if n:
            bar(y, 1 + exchange, 1, "compose, pass", "a")
    p.box(left + unit, 126, unit * exchange, 92, "d", 2)
    group(236, "states_alone")
    for n in range(4):
        y = 236 + 24 * n
        if n < 3:
            bar(y, 0, 0.5, "map", "b")
        bar(y, 0.5 + exchange, 1, "pass" if n == 0 else "compose, pass", "a")
    p.box(left + unit * 0.5, 236, unit * exchange, 92, "d", 2)
    group(346, "head_by_head")
    for n in range(4):
        for head in range(8):
            bar(346 + 24 * n, (n + head) / 8, 1 / 8, str(head), "a")
    p.text(left + unit * 1.5, 362, "heads 0 to 7, H + N - 1 = 11 turns of an eighth", "small soft")
    p.arrow((left, 448), (left + unit * 4.1, 448))
    for n in range(1, 5):
        p.line(left + unit * n, 444, left + unit * n, 452)
        p.text(left + unit * n, 468, f"{n} / 4", "middle small soft")
    p.text(10, 452, "time, in parts of one device's", "small soft")
    p.box(610, 150, 14, 14, "d", 2)
    p.text(630, 162, "exchange of all maps", "small")
    p.box(610, 174, 14, 14, "b", 2)
    p.text(630, 186, "first pass, for the map", "small")
    p.box(610, 198, 14, 14, "a", 2)
    p.text(630, 210, "pass with outputs", "small")
    return p


def devices_model() -> Picture:
    p = Picture(
        "devices_model", 780, 360, "The model: milliseconds over devices, 2^20 positions of simple_gla",
        "A plot with 1 to 1024 devices and 0.5 to 50 ms, both logarithmic. relay stays at 3.7 to 5 ms and rises to 31. all_gather "
        "falls from 3.7 to 0.74 at 16 devices and rises to 18. states_alone is below it, 0.62 at 16. head_by_head is the lowest with "
        "two devices, 1.49 at 8, and rises to 44.",
    )  # fmt: skip
    devices = [1, 2, 3, 4, 8, 16, 64, 256, 1024]
    curves = [
        ("relay", [3.673, 3.7, 3.727, 3.754, 3.863, 4.08, 5.383, 10.6, 31.44], "line", 4),
        ("all_gather", [3.673, 3.7, 2.497, 1.904, 1.058, 0.7414, 1.243, 4.539, 18.04], "line", -2),
        ("states_alone", [3.673, 2.78, 1.881, 1.441, 0.8246, 0.6221, 1.21, 4.527, 18.03], "line dashed", 14),
        ("head_by_head", [3.741, 2.293, 1.947, 1.722, 1.489, 1.625, 3.492, 11.52, 43.8], "faint", -2),
    ]
    left, right, top, bottom = 60, 600, 20, 310

    def at(n, ms):
        return left + (right - left) * log10(n) / log10(1024), bottom - (bottom - top) * (log10(ms) - log10(0.5)) / 2

    for n in (1, 2, 4, 8, 16, 64, 256, 1024):
        x, _ = at(n, 1)
        p.line(x, bottom, x, bottom + 5)
        p.text(x, bottom + 20, str(n), "middle small")
    p.text(right, bottom + 42, "devices", "end small soft")
    for ms in (0.5, 1, 5, 10, 50):
        _, y = at(1, ms)
        p.line(left, y, right, y, "faint dashed")
        p.text(left - 8, y + 4, f"{ms:g} ms" if ms == 50 else f"{ms:g}", "end small")
    for name, values, kind, shift in curves:
        points = [at(n, ms) for n, ms in zip(devices, values)]
        for (x1, y1), (x2, y2) in zip(points, points[1:]):
            p.line(x1, y1, x2, y2, kind)
        marks = {"relay": "a", "all_gather": "b", "states_alone": "c", "head_by_head": "d"}
        for x, y in points:
            p.box(x - 4, y - 4, 8, 8, marks[name], 4)
        x, y = points[-1]
        p.text(x + 10, y + 4 + (shift if name in ("all_gather", "states_alone") else 0), name + (" (dashed)" if "dashed" in kind else ""), "small")
    return p


DRAWINGS = (
    maps_as_lines,
    hillis_steele,
    blelloch,
    bank_padding,
    scan_levels,
    look_back,
    look_back_waits,
    scan_turns,
    channel_lanes,
    scan_or_chunk,
    states_look_back,
    map_tree,
    decode_tokens,
    decode_loads,
    devices_time,
    devices_model,
)
