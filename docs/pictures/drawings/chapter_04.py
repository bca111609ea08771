"""The drawings of chapter 04, fused chunks."""

from svg import Picture


def five_steps() -> Picture:
    p = Picture(
        "five_steps", 780, 540, "The five steps and what lies in memory between them",
        "Step 1, decay_cumsum, makes sums of g, 512 bytes per position and head. Step 2, prepare_qg_kg, makes q_g and k_g of q, "
        "k and the sums, 512 bytes. Step 3, fused_chunk, walks the sub-chunks with q_g, k_g, v, the sub-chunks' last sums and "
        "S_0, and leaves partials, 1024 bytes, and the final state. Step 4, inner_chunk, makes scores of q, k and the sums, 64 "
        "bytes. Step 5, combine, makes o of the partials, the scores and v. Dashed frames: the steps 1 and 2 are one kernel of "
        "intra_fused, the steps 3 to 5 the other one.",
    )  # fmt: skip

    def tensor(x, y, name, what, width=130):
        p.labelled(x, y, width, 44, [name, what], "a")

    def step(y, number, name, grid, kind="b"):
        p.labelled(230, y, 176, 44, [f"{number}  {name}", grid], kind, "middle small bold")

    for y, height, name in ((24, 166, "prepare"), (222, 280, "walk")):
        p.box(216, y, 204, height, "line dashed")
        p.text(226, y + height - 8, f"intra_fused: {name}", "small soft")
    tensor(20, 40, "g", "512 bytes")
    step(40, 1, "decay_cumsum", "a block per sub-chunk")
    tensor(480, 40, "sums", "512 bytes")
    p.arrow((150, 62), (230, 62))
    p.arrow((406, 62), (480, 62))
    tensor(20, 124, "q, k", "512 bytes")
    step(124, 2, "prepare_qg_kg", "a block per sub-chunk")
    tensor(480, 124, "q_g, k_g", "512 bytes")
    p.arrow((150, 146), (230, 146))
    p.arrow((406, 146), (480, 146))
    p.arrow((510, 84), (510, 104), (318, 104), (318, 124))
    tensor(20, 232, "v, S_0", "256 bytes")
    step(232, 3, "fused_chunk", "four blocks per head", "d")
    tensor(480, 232, "partials, final state", "1024 bytes", 150)
    p.arrow((150, 254), (230, 254))
    p.arrow((406, 254), (480, 254))
    p.arrow((510, 168), (510, 204), (318, 204), (318, 232))
    p.arrow((610, 62), (650, 62), (650, 212), (380, 212), (380, 232), kind="line dashed")
    p.lines(656, 140, ["last rows of the", "sub-chunks"], "small")
    step(322, 4, "inner_chunk", "a block per sub-chunk")
    tensor(480, 322, "scores", "64 bytes", 150)
    p.arrow((406, 344), (480, 344))
    p.arrow((190, 146), (190, 336), (230, 336))
    p.arrow((610, 50), (770, 50), (770, 304), (318, 304), (318, 322))
    step(432, 5, "combine", "a block per sub-chunk")
    tensor(480, 432, "o", "256 bytes", 150)
    p.arrow((406, 454), (480, 454))
    p.arrow((170, 254), (170, 454), (230, 454))
    p.arrow((530, 366), (530, 392), (318, 392), (318, 432))
    p.arrow((630, 254), (660, 254), (660, 412), (372, 412), (372, 432))
    p.text(20, 526, "blue: in device memory, bytes per position and head at Dk = Dv = 128; light orange and pink: kernels", "small soft")
    return p


def bytes_and_time() -> Picture:
    p = Picture(
        "bytes_and_time", 780, 388, "What each fusion does to bytes and to time",
        "Nine forms of gla with 32 heads, L = 16384, Dk = Dv = 128: gigabytes moved and milliseconds. five_steps 4.16 and 4.02; "
        "with step 2 in step 1 3.90 and 3.87; with step 5 in step 3 as well 2.55 and 5.20; intra_fused 2.96 and 7.82; one_kernel "
        "1.35 and 1.45; specialized 1.35 and 1.23; score_levels 1.35 and 0.624; chapter 03 1.74 and 0.494; segments 1.26 and "
        "0.318. The least possible is 0.81 and 0.19.",
    )  # fmt: skip
    rows = (
        ("five_steps", 4.16, 4.02),
        ("  and step 2 in 1", 3.90, 3.87),
        ("  and step 5 in 3", 2.55, 5.20),
        ("intra_fused: and 4 in 3", 2.96, 7.82),
        ("one_kernel", 1.35, 1.45),
        ("specialized", 1.35, 1.23),
        ("score_levels", 1.35, 0.624),
        ("chapter 03's dispatch", 1.74, 0.494),
        ("segments", 1.26, 0.318),
    )
    left, right = (214, 44), (484, 29)
    p.text(left[0], 24, "moved, GB", "bold")
    p.text(right[0], 24, "time, ms", "bold")
    for i, (name, moved, time) in enumerate(rows):
        y = 40 + 34 * i
        p.text(12, y + 18, name.strip(), "small" if name.startswith(" ") else "small bold")
        for (x, scale), value, kind in ((left, moved, "a"), (right, time, "b")):
            p.box(x, y, value * scale, 24, kind, 2)
            p.text(x + value * scale + 6, y + 17, f"{value:.2f}" if value >= 1 else f"{value:.3f}", "small")
    for (x, scale), value, kind in ((left, 0.81, "a"), (right, 0.19, "b")):
        p.line(x + value * scale, 32, x + value * scale, 346, "line dashed")
        p.text(x, 364, f"dashed: the least, {value}", "small soft")
    p.text(12, 382, "B=4, H=8, L=16384, Dk=Dv=128 on an H200", "small soft")
    return p


def prepare_beside_walk() -> Picture:
    p = Picture(
        "prepare_beside_walk", 780, 320, "Where the preparing work costs time",
        "Above, one_kernel: of a scheduler's clocks for a chunk 37 percent issue instructions of two preparing warps, 17 percent "
        "of two walking warps, and 46 percent none; the memory is 34 percent busy. Below, chapter 03's kernel in front of the "
        "walk: the memory is busy all the time, and the same instructions run under its traffic, at no cost.",
    )  # fmt: skip
    x, width = 150, 610
    p.text(12, 24, "one_kernel: the clocks of a chunk, all blocks at once", "bold")
    p.text(12, 62, "a scheduler", "small")
    first, second = width * 0.37, width * 0.17
    p.labelled(x, 42, first, 32, ["5000 instructions that prepare"], "b")
    p.labelled(x + first, 42, second, 32, ["2300: walk"], "c")
    p.labelled(x + first + second, 42, width - first - second, 32, ["issues nothing: every warp waits"], "paper")
    p.text(12, 106, "memory", "small")
    p.labelled(x, 86, width * 0.34, 32, ["busy 34 %"], "a")
    p.labelled(x + width * 0.34, 86, width * 0.66, 32, ["idle"], "paper")
    p.text(12, 178, "chapter 03: the kernel in front of the walk", "bold")
    p.text(12, 216, "a scheduler", "small")
    p.labelled(x, 196, width * 0.45, 32, ["the same instructions, of 12 warps"], "b")
    p.labelled(x + width * 0.45, 196, width * 0.55, 32, ["waits for memory all the same"], "paper")
    p.text(12, 260, "memory", "small")
    p.labelled(x, 240, width * 0.95, 32, ["4.0 of the 4.2 TB/s of a copy: this is the limit"], "a")
    p.box(x + width * 0.95, 240, width * 0.05, 32)
    p.text(12, 296, "The upper bars are measured. How much of the lower scheduler's time is filled is a sketch.", "small soft")
    return p


def score_anchors() -> Picture:
    p = Picture(
        "score_anchors", 780, 390, "An anchor for every pair of a sub-chunk",
        "A triangle of 16 queries, downwards, and 16 keys, to the right. Queries 8 to 15 with keys 0 to 7 are one block of 64 "
        "pairs with the anchor 8. Within each half, a block of 16 pairs has the anchor 4 or 12. Within each quarter, four pairs "
        "have the anchor 2, 6, 10 or 14. Of two neighbours the later one is the anchor, 8 pairs. The 16 pairs on the diagonal "
        "need no gate.",
    )  # fmt: skip
    x0, y0, side = 66, 44, 20
    kinds = {8: "a", 4: "b", 2: "c", 1: "d", 0: "paper"}
    p.text(x0, 18, "keys i, to the right; queries t, downwards", "small")
    for t in range(16):
        p.text(x0 - 6, y0 + side * t + 15, str(t), "end small")
        p.text(x0 + side * t + 10, y0 - 6, str(t), "middle small")
        for i in range(t + 1):
            level = 1 << ((t ^ i).bit_length() - 1) if t != i else 0
            p.box(x0 + side * i, y0 + side * t, side, side, kinds[level], 0)
            p.text(x0 + side * i + 10, y0 + side * t + 15, str(level or "="), "middle small")
    x = x0 + 16 * side + 30
    rows = (
        (8, ["64 pairs, anchor 8: queries decayed", "from 8 on, keys up to 7"]),
        (4, ["2 x 16 pairs, anchors 4 and 12"]),
        (2, ["4 x 4 pairs, anchors 2, 6, 10, 14"]),
        (1, ["8 pairs of neighbours: t is the anchor,", "and the key needs no factor"]),
        (0, ["16 pairs (t, t): no gate at all"]),
    )
    y = 60
    for level, lines in rows:
        p.labelled(x, y, 22, 22, [str(level or "=")], kinds[level])
        p.lines(x + 34, y + 15, lines, "small")
        y += 20 + 18 * len(lines)
    p.lines(
        x,
        y + 14,
        [
            "From one level to the next, half of",
            "the rows are multiplied by the decay",
            "of as many positions. After level 8",
            "they are q~ and k~.",
        ],
        "small soft",
    )
    return p


def exchange(p, x1, y1, x2, y2, there, back, dx=0, dy=0):
    """Two arrows between two boxes, one each way, with the names of their barriers."""
    horizontal = abs(x2 - x1) > abs(y2 - y1)
    ox, oy = (0, 9) if horizontal else (9, 0)
    p.arrow((x1 - ox, y1 - oy), (x2 - ox, y2 - oy))
    p.arrow((x2 + ox, y2 + oy), (x1 + ox, y1 + oy), kind="line dashed")
    x, y = (x1 + x2) / 2 + dx, (y1 + y2) / 2 + dy
    if horizontal:
        p.text(x, y - oy - 6, there, "middle small mono")
        p.text(x, y + oy + 16, back, "middle small mono")
    else:
        p.text(x - ox - 6, y + 4, there, "end small mono")
        p.text(x + ox + 6, y + 4, back, "small mono")


def score_roles() -> Picture:
    p = Picture(
        "score_roles", 780, 400, "Who waits for whom in score_levels",
        "Roles of a block as boxes. Bulk copies of q, k and g, which a multiplying warp requests, fill a preparing warp's raw "
        "tiles: raw_full. The preparing warp leaves levels for the multiplying warp: levels_full, and back levels_empty. Both "
        "fill a slot: prepared_full counts two; the walking warpgroups give it back: prepared_empty. A thread loads V: full, "
        "empty. The walk leaves O for a thread that stores: output_full, output_empty.",
    )  # fmt: skip
    p.labelled(20, 40, 170, 56, ["one thread:", "loads V"], "a")
    p.labelled(590, 40, 170, 130, ["walking warpgroups,", "one per 64 columns:", "S in registers,", "wgmma"], "d")
    exchange(p, 190, 68, 590, 68, "full", "empty")
    p.labelled(20, 190, 170, 56, ["copy engine:", "q, k, g, 8 rows at a time"], "a")
    p.labelled(320, 150, 170, 56, ["4 preparing warps:", "rows times decays"], "b")
    p.labelled(320, 290, 170, 56, ["4 multiplying warps:", "levels to P, by mma"], "c")
    p.arrow((190, 205), (320, 188))
    p.text(252, 188, "raw_full", "middle small mono")
    p.arrow((320, 318), (105, 318), (105, 246), kind="line dashed")
    p.lines(20, 336, ["asks for the next ones, being", "the last to read q and k"], "small soft")
    exchange(p, 405, 206, 405, 290, "levels_full", "levels_empty")
    p.arrow((490, 168), (540, 168), (540, 140), (590, 140))
    p.arrow((490, 310), (560, 310), (560, 156), (590, 156))
    p.text(566, 250, "P", "small")
    p.text(496, 160, "q~, k~", "small")
    p.text(552, 228, "prepared_full (2)", "end small mono")
    p.arrow((590, 124), (405, 124), (405, 150), kind="line dashed")
    p.text(470, 118, "prepared_empty", "middle small mono")
    p.labelled(590, 290, 170, 56, ["one thread:", "stores O by bulk copies"], "a")
    p.arrow((740, 170), (740, 290))
    p.arrow((610, 290), (610, 170), kind="line dashed")
    p.text(734, 218, "output_full", "end small mono")
    p.text(616, 250, "output_empty", "small mono")
    p.text(20, 388, "solid: is full, go on; dashed: is free again; (2): full after two arrivals", "small soft")
    return p


def segment_blocks() -> Picture:
    p = Picture(
        "segment_blocks", 780, 392, "Where the blocks are, and the three kernels of segments",
        "Three grids of 132 multiprocessors. 32 blocks of 128 columns use 32 of them. 64 blocks of 64 columns use 64, and the two "
        "blocks of a head prepare the same. 32 heads times four segments use 128. Below, three kernels on a line of time: states "
        "of the segments 0 to 2, the carry, the walk of all four segments; each may start before the one before it has ended.",
    )  # fmt: skip
    titles = (
        ("32 heads,", "tiles of 128 columns"),
        ("tiles of 64 columns:", "each head prepares twice"),
        ("tiles of 128 columns,", "four segments"),
    )
    for panel, title in enumerate(titles):
        x0 = 30 + 255 * panel
        p.lines(x0, 20, title, "small bold")
        for i in range(132):
            x, y = x0 + i % 22 * 9.5, 48 + i // 22 * 20
            kind = "paper"
            if panel == 0 and i < 32:
                kind = "a"
            elif panel == 1 and i < 64:
                kind = "ab"[i % 2]
            elif panel == 2 and i < 128:
                kind = "abcd"[i // 32]
            p.box(x, y, 8.5, 18, kind, 1)
    p.text(30, 190, "each cell is one of the 132 multiprocessors; white ones have no block", "small soft")
    p.text(30, 226, "time", "small soft")
    p.arrow((62, 222), (750, 222), kind="faint")
    p.labelled(30, 236, 236, 34, ["states: k, v, g of segments 0, 1, 2"], "a")
    p.box(226, 280, 114, 34, "b")
    p.text(303, 301, "carry", "middle small")
    p.labelled(300, 324, 440, 34, ["walk of all four segments: q, k, v, g; o"], "c")
    p.line(266, 236, 266, 366, "line dashed")
    p.line(340, 236, 340, 366, "line dashed")
    p.lines(
        364,
        250,
        ["Left of its dashed line a kernel has started early: it loads", "and prepares, and waits there for the one before."],
        "small",
    )
    p.text(30, 386, "three launches; a sketch: segments of more than 16 chunks do not start early", "small soft")
    return p


def three_decays() -> Picture:
    p = Picture(
        "three_decays", 780, 300, "One gate per head: three factors on a chunk",
        "Left, the triangle of scores of a chunk: each score is multiplied by 2 to the b_t minus b_i. Middle, the rows of Q S: row t "
        "is multiplied by 2 to the b_t. Right, the rows of V on their way into the state: row i is multiplied by 2 to the b_end "
        "minus b_i, and the state itself by 2 to the b_end.",
    )  # fmt: skip
    y, side = 60, 140
    p.text(110, 28, "scores, then times V", "middle bold")
    p.text(370, 28, "from the state", "middle bold")
    p.text(640, 28, "into the state", "middle bold")
    p.polygon([(40, y), (40, y + side), (40 + side, y + side)], "b")
    p.line(40, y + 98, 138, y + 98, "line dashed")
    p.line(82, y + 42, 82, y + side, "line dashed")
    p.box(76, y + 92, 12, 12, "d", 0)
    p.text(34, y + 102, "t", "end small")
    p.text(82, y + side + 16, "i", "middle small")
    p.text(110, y + side + 44, "(q_t . k_i) 2^(b_t - b_i)", "middle mono")
    for row in range(7):
        p.box(300, y + 20 * row, side, 20, "c", 0)
        p.box(550, y + 20 * row, 90, 20, "a", 0)
    p.text(370, y + 94, "row t", "middle small")
    p.text(595, y + 54, "row i", "middle small")
    p.text(294, y + 94, "t", "end small")
    p.text(544, y + 54, "i", "end small")
    p.text(370, y + side + 44, "2^b_t  q_t S", "middle mono")
    p.text(595, y + side + 18, "V", "middle small")
    p.text(370, y + side + 18, "Q S", "middle small")
    p.arrow((640, y + 70), (680, y + 70))
    p.text(660, y + 62, "K^T", "middle small mono")
    p.labelled(682, y + 40, 70, 60, ["S"], "paper", "middle mono bold")
    p.text(717, y + 118, "2^b_end S", "middle small mono")
    p.text(640, y + side + 44, "2^(b_end - b_i) v_i", "middle mono")
    p.text(20, 286, "No factor has a d in it, so each waits until after the product. All exponents here are at most 0.", "small soft")
    return p


def decay_roles() -> Picture:
    p = Picture(
        "decay_roles", 780, 300, "Which warps compute the decays",
        "Four rows of work at the same time. A thread loads Q, K and V of chunk n + 3. A warp adds up g and writes the powers of "
        "chunk n + 3, while g of n + 7 is under way. A warpgroup of the scores has chunk n + 1: the product Q K^T, under it V~, "
        "then P with its decays. The warpgroup of the state has chunk n: it decays S, multiplies S^T Q^T and V^T P^T, then V~^T K, "
        "and under this adds the two parts of O. Light orange is what the gates add.",
    )  # fmt: skip
    names = (("one thread", "loads"), ("one warp", "decays"), ("two warpgroups", "scores, in turn"), ("one warpgroup", "state"))
    for row, (who, what) in enumerate(names):
        y = 20 + 62 * row
        p.text(12, y + 18, who, "small")
        p.text(12, y + 34, what, "small bold")
    x = 130
    p.labelled(x, 20, 630, 44, ["Q, K, V of chunk n + 3, by bulk copies"], "a")
    p.labelled(x, 82, 300, 44, ["g of n + 7 is requested"], "a")
    p.labelled(x + 300, 82, 330, 44, ["b, 2^b, 2^(b_end - b), 2^b_end of n + 3"], "b")
    p.labelled(x, 144, 160, 44, ["chunk n + 1:", "Q K^T"], "c")
    p.labelled(x + 160, 144, 200, 44, ["under it V~ =", "diag(2^(b_end - b)) V"], "b")
    p.labelled(x + 360, 144, 270, 44, ["P_ti = (q_t . k_i) 2^(b_t - b_i)", "to shared memory"], "b")
    p.labelled(x, 206, 100, 44, ["chunk n:", "S = 2^b_end S"], "b")
    p.labelled(x + 100, 206, 200, 44, ["S^T Q^T, V^T P^T"], "c")
    p.labelled(x + 300, 206, 130, 44, ["V~^T K"], "c")
    p.labelled(x + 430, 206, 200, 44, ["under it O =", "diag(2^b) Q S + P V"], "b")
    p.text(12, 286, "blue: loads; green: products of warpgroups; light orange: what the gates add", "small soft")
    return p


def register_scores() -> Picture:
    p = Picture(
        "register_scores", 780, 350, "Who waits for whom in register_scores",
        "A thread that loads tiles and a warp that adds up gates fill a set of tiles: full, which counts two, for the scores and for "
        "the state; both give it back: empty. The state writes Q S to shared memory: state_full, for the scores, which give it "
        "back: state_empty. The scores leave O for two warps that store: output_full, output_empty.",
    )  # fmt: skip
    p.labelled(20, 40, 160, 56, ["one thread:", "loads Q, K, V"], "a")
    p.labelled(20, 220, 160, 56, ["one warp: adds up g,", "writes the decays"], "a")
    p.box(230, 120, 130, 76, "paper")
    p.lines(295, 144, ["four sets of", "Q, K, V, decays", "in shared memory"], "middle small")
    p.arrow((180, 76), (250, 76), (250, 120))
    p.arrow((180, 240), (250, 240), (250, 196))
    p.text(256, 92, "full (2)", "small mono")
    p.text(256, 232, "full (2)", "small mono")
    p.labelled(460, 40, 180, 66, ["one warpgroup, state:", "S^T Q^T, then V~^T K;", "waits for tiles"], "d")
    p.labelled(460, 210, 180, 66, ["two warpgroups, in turn:", "Q K^T, P in registers,", "P V, plus Q S"], "c")
    p.arrow((360, 136), (396, 136), (396, 56), (460, 56))
    p.arrow((460, 84), (420, 84), (420, 150), (360, 150), kind="line dashed")
    p.arrow((460, 232), (420, 232), (420, 166), (360, 166), kind="line dashed")
    p.arrow((360, 180), (396, 180), (396, 260), (460, 260))
    p.text(428, 155, "empty: when both", "small mono")
    p.text(428, 172, "have read the set", "small mono")
    p.arrow((590, 106), (590, 210))
    p.arrow((610, 210), (610, 106), kind="line dashed")
    p.text(584, 196, "state_full: Q S", "end small mono")
    p.text(618, 162, "state_empty", "small mono")
    p.labelled(690, 216, 80, 54, ["two warps:", "store O"], "a")
    p.arrow((640, 234), (690, 234))
    p.arrow((690, 252), (640, 252), kind="line dashed")
    p.text(640, 294, "output_full, output_empty", "middle small mono")
    p.lines(
        20,
        326,
        [
            "Solid: is full, go on; dashed: is free again; (2): full after two arrivals. The state waits for tiles, and for one of",
            "two places of Q S. The scores wait for tiles, and at the end of a chunk for Q S. P passes through no memory.",
        ],
        "small soft",
    )
    return p


def bounded_starts() -> Picture:
    p = Picture(
        "bounded_starts", 780, 330, "Where the blocks of a head start",
        "Four segments of eight chunks each, and a block for each. In a head that forgets, each block but the first walks one chunk "
        "before its segment, from zeros, and then its segment. In a head that never forgets, each block walks all chunks before its "
        "segment, from the initial state at position 0.",
    )  # fmt: skip
    x, chunk = 226, 16

    def rows(y, warm_ups):
        for m, warm_up in enumerate(warm_ups):
            first = x + 8 * m * chunk
            p.text(12, y + 24 * m + 14, f"block of segment {m}", "small")
            if warm_up:
                p.box(first - warm_up * chunk, y + 24 * m, warm_up * chunk, 18, "b")
            p.box(first, y + 24 * m, 8 * chunk, 18, "c")

    p.text(12, 22, "a head that forgets", "bold")
    rows(32, (0, 1, 1, 1))
    p.text(12, 152, "a head that never forgets", "bold")
    rows(162, (0, 8, 16, 24))
    for m in range(5):
        p.line(x + 8 * m * chunk, 28, x + 8 * m * chunk, 262, "line dashed")
        p.text(x + 8 * m * chunk, 278, f"chunk {8 * m}", "middle small")
    p.box(12, 292, 22, 18, "b")
    p.text(42, 306, "warm-up: K and V into the state, no outputs", "small")
    p.box(340, 292, 22, 18, "c")
    p.text(370, 306, "walk: the state and outputs", "small")
    return p


def gate_pairs() -> Picture:
    p = Picture(
        "gate_pairs", 780, 300, "Which pairs of positions are in the gradient of a gate",
        "A triangle of queries, downwards, and keys, to the right, cut at position p. Pairs of a query from p on and a key before p "
        "pass the gate of p and are its gradient. Pairs with both positions from p on are in both sums and cancel. Pairs with both "
        "before p are in neither sum.",
    )  # fmt: skip
    x, y, side, cut = 90, 44, 220, 90
    p.text(x, 20, "keys i, to the right; queries t, downwards", "small")
    p.polygon([(x, y), (x, y + cut), (x + cut, y + cut)], "paper")
    p.polygon([(x, y + cut), (x, y + side), (x + cut, y + side), (x + cut, y + cut)], "b")
    p.polygon([(x + cut, y + cut), (x + cut, y + side), (x + side, y + side)], "a")
    p.text(x - 8, y + cut + 5, "p", "end small bold")
    p.text(x + cut, y + side + 18, "p", "middle small bold")
    rows = (
        ("b", ["t >= p > i: the decay contains the gate of p.", "In the sum of q . dq alone: these pairs are dg_p"]),
        ("a", ["t >= i >= p: in the sum of q . dq and in that of k . dk.", "They cancel, if both have rounded them alike"]),
        ("paper", ["p > t >= i: in neither sum"]),
    )
    for i, (kind, lines) in enumerate(rows):
        p.box(370, 78 + 64 * i, 22, 22, kind)
        p.lines(404, 93 + 64 * i, lines, "small")
    return p


def gradient_borders() -> Picture:
    p = Picture(
        "gradient_borders", 780, 260, "dg starts anew where both states are in memory",
        "A sequence in four segments. S is carried from left to right and dS from right to left, so that both are in memory at each "
        "border. Their product is dg there, and within each segment the sum for dg runs from its end to its beginning.",
    )  # fmt: skip
    x0, width = 60, 155
    p.text(12, 64, "S", "mono bold")
    p.text(12, 124, "dS", "mono bold")
    p.text(12, 194, "dg", "mono bold")
    for m in range(4):
        x = x0 + width * m
        p.labelled(x + 6, 44, width - 12, 30, [f"segment {m}"], "a")
        p.labelled(x + 6, 104, width - 12, 30, [f"segment {m}"], "d")
        p.arrow((x + width - 12, 190), (x + 14, 190))
        if m:
            p.line(x, 30, x, 210, "line dashed")
            p.box(x - 6, 184, 12, 12, "b", 6)
    p.arrow((x0, 34), (x0 + 4 * width, 34))
    p.arrow((x0 + 4 * width, 148), (x0, 148))
    p.text(x0 + 4 * width + 8, 38, "forwards", "small")
    p.text(x0 + 4 * width - 6, 166, "from the end", "end small")
    p.box(x0 + 4 * width - 6, 184, 12, 12, "b", 6)
    p.text(x0 + 4 * width + 12, 195, "dfinal_state", "small")
    p.box(x0, 228, 12, 12, "b", 6)
    words = "<S, dS> of two states in memory: the sum starts from it, and errors of other segments do not reach it"
    p.text(x0 + 20, 239, words, "small")
    return p


def gradient_runs() -> Picture:
    p = Picture(
        "gradient_runs", 780, 240, "192 walks on 132 multiprocessors",
        "60 multiprocessors have a whole walk and then the second half of a cut one. 60 others have the first half of a cut one and "
        "then a whole walk. 12 have a whole walk and then nothing. All end after one and a half walks.",
    )  # fmt: skip
    x, walk = 150, 400
    rows = (
        ("60 multiprocessors", [(1, "a whole walk: dq, dk or dv of 64 columns", "c"), (0.5, "second half of a cut one", "b")]),
        ("60 others", [(0.5, "first half of a cut one", "b"), (1, "a whole walk", "c")]),
        ("12 others", [(1, "a whole walk", "c"), (0.5, "nothing", "paper")]),
    )
    for i, (name, parts) in enumerate(rows):
        y = 24 + 56 * i
        p.text(12, y + 22, name, "small")
        at = x
        for part, words, kind in parts:
            p.labelled(at, y, part * walk, 34, [words], kind)
            at += part * walk
    p.arrow((x + 0.5 * walk - 6, 80), (x + 0.5 * walk - 6, 69), (x + walk + 8, 69), (x + walk + 8, 58), kind="line dashed")
    p.lines(
        12,
        210,
        [
            "Dashed: the state at the border of the cut walk. It has been in memory for half a walk before the second half begins,",
            "so no run waits for it.",
        ],
        "small soft",
    )
    return p


def walks_in_step() -> Picture:
    p = Picture(
        "walks_in_step", 780, 280, "Work for nothing that makes the kernel faster",
        "Two plots of chunks over time, for the walks of dk and dv of a head. Left: dv has no row products to compute, is faster, and "
        "in the end further ahead than the cache reaches back, so dk reads from memory again. Right: dv computes row products too, "
        "both walks keep in step, and one of them reads from the cache.",
    )  # fmt: skip
    for panel, title in enumerate(("dv without row products: 1.35 GB read", "dv with row products: 1.08 to 1.12 GB")):
        x0, y0, w, h = 50 + 385 * panel, 50, 300, 160
        p.text(x0 + w / 2, 26, title, "middle bold")
        p.line(x0, y0, x0, y0 + h)
        p.arrow((x0, y0 + h), (x0 + w + 10, y0 + h))
        p.text(x0 + w, y0 + h + 18, "time", "end small")
        p.text(x0 - 8, y0 + 8, "chunk", "end small")
        top = (x0 + w * 0.72, y0) if panel == 0 else (x0 + w * 0.86, y0)
        end = (x0 + w * 0.98, y0) if panel == 0 else (x0 + w * 0.9, y0)
        p.polygon([(x0, y0 + h), top, (top[0] + 38, y0), (x0 + 38, y0 + h)], "a")
        p.line(x0, y0 + h, *top)
        p.line(x0 + 4, y0 + h, *end, "line dashed")
        p.text(top[0] - 38, y0 + 22, "dv", "end small bold")
        p.text(end[0] + (10 if panel == 0 else 30), y0 + 22, "dk", "small bold")
    p.text(50, 252, "blue: how long the cache keeps what dv has read. Outside of it, dk reads from memory once more.", "small soft")
    p.text(50, 270, "A sketch; the gigabytes were measured at L = 16384 with 32 heads.", "small soft")
    return p


DRAWINGS = (
    five_steps,
    bytes_and_time,
    prepare_beside_walk,
    score_anchors,
    score_roles,
    segment_blocks,
    three_decays,
    decay_roles,
    register_scores,
    bounded_starts,
    gate_pairs,
    gradient_borders,
    gradient_runs,
    walks_in_step,
)
