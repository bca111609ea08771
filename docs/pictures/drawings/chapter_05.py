"""The drawings of chapter 05, the delta rule, and of its gradients."""

from svg import Picture


def overwrite() -> Picture:
    p = Picture(
        "overwrite", 740, 250, "What a state answers after three writes",
        "Three writes, from left to right: Bonn under the key Capital, Rhine under River, Berlin under Capital. After each, the "
        "answers to both keys. A state that adds answers Capital with Bonn, Bonn, and Bonn plus Berlin. With the delta rule it "
        "is Bonn, Bonn, Berlin. River is answered with Rhine in both.",
    )  # fmt: skip
    writes = (("Capital", "Bonn"), ("River", "Rhine"), ("Capital", "Berlin"))
    answers = (
        ("adding", (("Bonn", "Bonn", "Bonn + Berlin"), ("0", "Rhine", "Rhine"))),
        ("delta rule", (("Bonn", "Bonn", "Berlin"), ("0", "Rhine", "Rhine"))),
    )
    x0, width = 230, 165
    p.text(10, 32, "write value under key", "bold")
    for i, (key, value) in enumerate(writes):
        x = x0 + width * i
        p.labelled(x, 12, width - 20, 32, [f"{value} under {key}"], "b")
        p.arrow((x + (width - 20) / 2, 44), (x + (width - 20) / 2, 64))
    for block, (rule, rows) in enumerate(answers):
        y = 68 + 90 * block
        p.text(10, y + 22, rule, "bold")
        if block == 0:
            p.text(10, y + 42, "(chapter 02)", "small soft")
        for r, (key, row) in enumerate(zip(("Capital", "River"), rows)):
            p.text(x0 - 12, y + 22 + 36 * r, f"answer to {key}" if r == 0 else f"to {key}", "end small")
            for i, answer in enumerate(row):
                kind = "paper" if r else "d" if answer == "Bonn + Berlin" else "c"
                p.labelled(x0 + width * i, y + 2 + 36 * r, width - 20, 30, [answer], kind)
    return p


def chunk_transition() -> Picture:
    p = Picture(
        "chunk_transition", 760, 310, "A chunk's transition in three forms",
        "First Phi as the product of 64 matrices of 128 by 128: 8.6 million operations per position, 32768 numbers to hand on. "
        "Second as I minus K^T W, with 64 rows of K and of W: 139136 operations, 16384 numbers. Third W as T K, with T of 64 by "
        "64: 141013 operations, 4096 numbers.",
    )  # fmt: skip
    p.text(540, 18, "operations", "middle small bold")
    p.text(540, 34, "per position", "middle small soft")
    p.text(675, 18, "numbers that a chunk", "middle small bold")
    p.text(675, 34, "must hand on", "middle small soft")
    rows = ((48, "8 585 216", "Φ and H: 32 768"), (148, "139 136", "W and U: 16 384"), (238, "141 013", "T: 4 096"))
    for y, work, numbers in rows:
        p.text(540, y + 38, work, "middle mono")
        p.text(675, y + 38, numbers, "middle mono")
    p.line(10, 128, 750, 128, "faint")
    p.line(10, 228, 750, 228, "faint")
    y = 50
    p.text(24, y + 36, "Φ  =", "mono")
    for x, name in ((70, "F_64"), (162, "F_63"), (286, "F_1")):
        p.labelled(x, y, 74, 64, [name, "128 x 128"], "a")
    p.text(153, y + 36, "·")
    p.text(261, y + 36, "·  ...  ·")
    p.text(374, y + 30, "dense_product", "small mono")
    y = 144
    p.text(24, y + 38, "Φ  =", "mono")
    p.labelled(76, y, 64, 64, ["I"], "paper")
    p.text(155, y + 36, "-")
    p.labelled(172, y, 32, 64, ["Kᵀ"], "b")
    p.text(218, y + 36, "·")
    p.labelled(232, y + 16, 64, 32, ["W"], "c")
    p.lines(310, y + 30, ["wy: 64 outer", "products, one per key"], "small")
    y = 246
    p.text(24, y + 26, "W  =", "mono")
    p.labelled(76, y + 4, 32, 32, ["T"], "d")
    p.text(122, y + 24, "·")
    p.labelled(136, y + 4, 64, 32, ["K"], "b")
    p.lines(310, y + 18, ["ut_transform:", "T is 64 x 64"], "small")
    return p


def inverse() -> Picture:
    p = Picture(
        "inverse", 760, 300, "A triangular matrix inverted in blocks",
        "The lower triangle of X in blocks of 16 x 16, numbered by distance from the diagonal. Step 1 inverts the four blocks on "
        "the diagonal by substitution, all at once. Steps 2, 3 and 4 follow by products. Beside it the last block: X_30 is "
        "minus X_33 times the sum of A_30 X_00, A_31 X_10 and A_32 X_20.",
    )  # fmt: skip
    x0, y0, side = 40, 56, 52
    p.text(x0 + 104, 22, "X = (I + A)⁻¹, 64 x 64", "middle bold")
    p.text(x0 + 104, 42, "the number of the step that computes a block", "middle small soft")
    kinds = ("b", "a", "c", "d")
    for r in range(4):
        for c in range(4):
            if c > r:
                p.box(x0 + side * c, y0 + side * r, side, side, "paper", 0)
                p.text(x0 + side * c + 26, y0 + side * r + 31, "0", "middle soft")
            else:
                p.labelled(x0 + side * c, y0 + side * r, side, side, [str(r - c + 1)], kinds[r - c], "middle bold")
    p.text(x0 + 104, y0 + 232, "16 rows and columns each", "middle small soft")
    x = 310
    for i, lines in enumerate(
        (
            ["1  by substitution: 16 steps, all four at once"],
            ["2  three blocks at once, e.g. X₁₀ = -X₁₁ (A₁₀ X₀₀)"],
            ["3  two blocks: X₂₀ = -X₂₂ (A₂₀ X₀₀ + A₂₁ X₁₀)"],
            ["4  X₃₀ = -X₃₃ (A₃₀ X₀₀ + A₃₁ X₁₀ + A₃₂ X₂₀)"],
        )
    ):
        p.box(x, 62 + 34 * i, 18, 18, kinds[i], 2)
        p.lines(x + 28, 76 + 34 * i, lines, "")
    p.text(x, 222, "step 4 in blocks:", "small soft")
    y = 236
    p.text(x + 6, y + 24, "-")
    p.labelled(x + 16, y, 36, 36, ["X₃₃"], "b")
    p.text(x + 62, y + 24, "·  (")
    for i, kind in enumerate(("b", "a", "c")):
        left = x + 80 + 106 * i
        p.labelled(left, y, 36, 36, [f"A₃{'₀₁₂'[i]}"], "paper")
        p.labelled(left + 42, y, 36, 36, [f"X{'₀₁₂'[i]}₀"], kind)
        p.text(left + 92, y + 24, "+" if i < 2 else ")")
    return p


def split_number() -> Picture:
    p = Picture(
        "split_number", 740, 226, "A number in two bf16, and why T needs them",
        "Minus 0.99 rounded to bf16 is minus 0.98828; what is left, minus 0.00172, is rounded to a second bf16. Below, a row of X "
        "with minus 0.99 and 1 times rows of the residual that are all k S: they should cancel to 0.01 k S, but with one bf16 "
        "0.0117 k S is left, 17 percent too much, and 64 such rows add up.",
    )  # fmt: skip
    p.text(10, 32, "one element", "bold")
    p.labelled(160, 10, 120, 34, ["-0.99"], "paper")
    p.text(300, 32, "=")
    p.labelled(320, 10, 150, 34, ["-0.98828125"], "b")
    p.text(488, 32, "+")
    p.labelled(506, 10, 150, 34, ["-0.00171661"], "c")
    p.text(395, 62, "high = bf16(x): 8 bits", "middle small")
    p.text(581, 62, "low = bf16(x - high): 8 more bits", "middle small")
    p.line(10, 82, 730, 82, "faint")
    p.text(10, 112, "a row of X", "bold")
    for i, (text, kind) in enumerate((("0", "paper"), ("...", "paper"), ("-0.99", "b"), ("1", "b"))):
        p.labelled(160 + 62 * i, 92, 62, 32, [text], kind)
    p.text(424, 113, "times rows of V - K S that all contain", "small")
    p.labelled(650, 92, 70, 32, ["-k S"], "a")
    p.text(160, 152, "exact:", "small")
    p.text(300, 152, "-0.99 + 1 = 0.01", "mono small")
    p.text(160, 172, "in one bf16:", "small")
    p.text(300, 172, "-0.98828 + 1 = 0.01172", "mono small")
    p.text(500, 172, "17 % too much, in every row alike", "small")
    p.text(160, 192, "in two bf16:", "small")
    p.text(300, 192, "-0.989998 + 1 = 0.010002", "mono small")
    p.text(160, 214, "T = X diag(beta) is the factor that loses most, so T is split and nothing else.", "small soft")
    return p


CHAIN = (  # of a chunk, in clocks: lane, begin, end, text, kind
    (0, 0, 192, "T Res", "b"),
    (0, 192, 448, "Q S", "a"),
    (0, 448, 704, "Kᵀ v_new", "b"),
    (0, 704, 832, "P v_new", "a"),
    (0, 834, 1090, "K S of n + 1", "b"),
    (1, 0, 192, "fetch -V of n + 1", "paper"),
    (1, 192, 322, "round v_new", "c"),
    (1, 704, 834, "round S", "c"),
    (1, 834, 1050, "put O", "paper"),
    (1, 1090, 1220, "round Res", "c"),
)


def delta_chain() -> Picture:
    p = Picture(
        "delta_chain", 780, 216, "A chunk on the tensor core and in the threads",
        "Two rows over 1220 clocks. Tensor core: T times the residual until 192, Q S until 448, K^T v_new until 704, P v_new until "
        "832, K S of the next chunk from 834 to 1090. Threads: fetch V during the first product, round v_new from 192 to 322, wait "
        "for the state until 704, round it, put O into shared memory while K S runs, round the residual from 1090 to 1220.",
    )  # fmt: skip
    x0, scale = 104, 0.54
    p.text(94, 66, "tensor core", "end small bold")
    p.text(94, 124, "threads", "end small bold")
    for lane, begin, end, text, kind in CHAIN:
        words = text.split(" ", 1) if end - begin < 140 or len(text) > 12 else [text]
        p.labelled(x0 + begin * scale, 38 + 58 * lane, (end - begin) * scale, 46, words, kind)
    for clock in (0, 192, 448, 704, 834, 1090, 1220):
        x = x0 + clock * scale
        p.line(x, 30, x, 150, "faint dashed")
        p.text(x, 24, str(clock), "middle small soft")
    p.text(x0 + 513 * scale, 124, "wait for S", "middle small soft")
    for i, (kind, text) in enumerate(
        (("b", "the chain: three products that wait for each other"), ("a", "queued behind them"), ("c", "rounding"))
    ):
        x = (104, 440, 600)[i]
        p.box(x, 164, 16, 16, kind, 2)
        p.text(x + 24, 177, text, "small")
    p.text(104, 204, "clocks as counted. Measured: some 1800, because issuing products and moving V and O take time, too", "small soft")
    return p


def scores_roles() -> Picture:
    p = Picture(
        "scores_roles", 740, 226, "P beside the chain: what runs at the same time",
        "Four rows over time. A thread loads Q, K, V and T of chunks n + 2 and n + 3. Warpgroup 1 computes P of n + 1, then of n + "
        "2, each a short box. The chain has chunk n, then n + 1. Warps that store have O of n - 1, then of n.",
    )  # fmt: skip
    rows = (
        ("thread 0 loads", [(0, 250, "Q, K, V, T of n + 2", "a"), (280, 250, "Q, K, V, T of n + 3", "a")]),
        ("warpgroup 1", [(30, 90, "P of n + 1", "d"), (330, 90, "P of n + 2", "d")]),
        ("warpgroup 2", [(0, 272, "the chain of n", "b"), (280, 272, "the chain of n + 1", "b")]),
        ("three warps store", [(0, 130, "O of n - 1", "c"), (280, 130, "O of n", "c")]),
    )
    x0 = 150
    for r, (name, boxes) in enumerate(rows):
        y = 14 + 46 * r
        p.text(140, y + 23, name, "end small bold")
        for x, width, text, kind in boxes:
            p.labelled(x0 + x, y, width, 36, [text], kind)
    p.arrow((x0 + 120, 78), (x0 + 290, 78), (x0 + 304, 106))
    p.text(x0 + 130, 72, "scores_full", "small")
    p.line(x0 + 276, 8, x0 + 276, 196, "faint dashed")
    p.text(x0, 216, "P is one product, 256 clocks: it is there long before the chain asks for it", "small soft")
    return p


def cluster_push() -> Picture:
    p = Picture(
        "cluster_push", 780, 330, "A push from one block of a cluster to the other",
        "Two blocks side by side, each with its shared memory, and device memory below. 1: a warpgroup of block 0 stores T and P "
        "into slot 0 of its own shared memory. 2: a push copies 20 KB from there into slot 0 of block 1. 3: its bytes are counted "
        "at the mbarrier matrices_full of block 1. 4: the chain of block 1, which waits at this mbarrier, goes on and reads the "
        "slot. 5: a message of 16 bytes, also a push, tells block 0 that the slot is free. Nothing of it goes through device memory.",
    )  # fmt: skip
    for x, title, kind in ((10, "block 0, on one multiprocessor", "end small soft"), (480, "block 1, on its neighbour", "small soft")):
        p.text(x + 145, 20, title, "middle bold")
        p.box(x, 30, 290, 214, "paper")
        p.line(x, 112, x + 290, 112, "faint dashed")
        p.text(x + (280 if x == 10 else 10), 128, "shared memory", kind)
    p.labelled(30, 48, 250, 40, ["a warpgroup: T and P of chunk 4"], "a")
    p.labelled(500, 48, 250, 40, ["the chain of block 1"], "b")
    p.labelled(30, 194, 130, 40, ["slot 0: T, P"], "d")
    p.labelled(500, 194, 130, 40, ["slot 0: T, P"], "d")
    p.labelled(150, 138, 130, 34, ["slot_free[0]"], "c")
    p.labelled(610, 138, 140, 34, ["matrices_full[0]"], "c")
    p.arrow((90, 88), (90, 194))
    p.text(98, 156, "1  store", "small")
    p.arrow((160, 214), (500, 214))
    p.text(390, 206, "2  push: 20 KB", "middle small")
    p.arrow((560, 194), (560, 155), (610, 155))
    p.text(552, 178, "3  count", "end small")
    p.arrow((680, 138), (680, 88))
    p.text(688, 106, "4  go on", "small")
    p.arrow((500, 68), (390, 68), (390, 155), (280, 155))
    p.lines(398, 100, ["5  message:", "16 bytes"], "small")
    p.labelled(10, 262, 760, 30, ["device memory, behind the second-level cache: not on this way"], "paper", "middle small soft")
    p.text(10, 318, "A push names its goal by the address of the same place in its own block, and by the number of the other block.", "small soft")
    return p


def cluster_turns() -> Picture:
    p = Picture(
        "cluster_turns", 770, 330, "Four warpgroups of two blocks compute T and P in turn",
        "Rows over time for two blocks of a cluster. In each, two warpgroups compute T and P, each for every fourth chunk and for "
        "four chunks' time: block 0 those of 4, 6, 8, block 1 those of 5, 7, 9. Each result is pushed to the other block. Below, "
        "both chains take a chunk after the other, one in each unit of time.",
    )  # fmt: skip
    x0, unit = 190, 62
    rows = (("block 0, warpgroup 1", 0, 4, "a"), ("block 1, warpgroup 1", 1, 5, "c"),
            ("block 0, warpgroup 2", 2, 6, "a"), ("block 1, warpgroup 2", 3, 7, "c"))  # fmt: skip
    for r, (name, start, chunk, kind) in enumerate(rows):
        y = 14 + 50 * r
        p.text(x0 - 12, y + 23, name, "end small bold")
        p.labelled(x0 + unit * start, y, unit * 4 - 4, 36, [f"T, P of chunk {chunk}"], kind)
        if start * unit + unit * 4 < 9 * unit:
            rest = min(4, 9 - start - 4)
            p.labelled(x0 + unit * (start + 4), y, unit * rest - 4, 36, [f"T, P of {chunk + 4}"], kind)
        if start:
            p.labelled(x0, y, unit * start - 4, 36, [f"of {chunk - 4}"], kind)
        x = x0 + unit * (start + 4) - 4
        p.arrow((x, y + 36), (x, y + 48))
        p.text(x - 8, y + 47, "push to the other block", "end small soft")
    p.text(x0 - 12, 244, "both chains", "end small bold")
    for n in range(8):
        p.labelled(x0 + unit * (n + 1), 222, unit - 4, 36, [str(n)], "b")
    p.text(x0, 286, "One chunk on the chain: 1.2 us. T of one chunk in a warpgroup: some four times as long.", "small soft")
    p.text(x0, 306, "Each warpgroup has a slot of its own in both blocks; T and P of chunk n lie in slot n % 4.", "small soft")
    return p


def three_blocks_waits() -> Picture:
    p = Picture(
        "three_blocks_waits", 780, 384, "Who waits for whom in a cluster of three blocks",
        "Block 2, in the middle, has a thread that loads pairs of Q and K and four warpgroups that compute T and P. It pushes those "
        "of even chunks to block 0, on the left, and of odd ones to block 1, on the right; each passes its share on to the other. "
        "In blocks 0 and 1 a thread loads Q, K and V, the chain waits for them and for T and P, and warps store O. A message of 16 "
        "bytes goes from each of them to block 2 when its chain has read a slot.",
    )  # fmt: skip
    for x, title, store in ((10, "block 0: columns 0-63", 10), (550, "block 1: columns 64-127", 138)):
        chain = 220 - 120 - 10 if store == 10 else 10
        p.box(x, 34, 220, 240, "paper")
        p.text(x + 110, 22, title, "middle bold")
        p.labelled(x + 10, 48, 200, 36, ["thread loads Q, K, V"], "a")
        p.labelled(x + chain, 136, 120, 40, ["the chain"], "b", "middle")
        p.labelled(x + store, 136, 72, 40, ["warps", "store O"], "c")
        p.labelled(x + 10, 222, 200, 36, ["T, P of four chunks"], "d")
        p.arrow((x + chain + 24, 84), (x + chain + 24, 136))
        p.text(x + chain + 30, 106, "full", "small")
        p.arrow((x + chain + 70, 136), (x + chain + 70, 84))
        p.text(x + chain + 76, 124, "empty", "small")
        p.arrow((x + chain + 24, 222), (x + chain + 24, 176))
        p.text(x + chain + 30, 204, "matrices_full", "small")
        ends = (x + chain, x + store + 72) if store == 10 else (x + chain + 120, x + store)
        p.arrow((ends[0], 150), (ends[1], 150))
    p.box(310, 34, 160, 240, "paper")
    p.text(390, 22, "block 2: T and P", "middle bold")
    p.labelled(320, 48, 140, 36, ["thread loads Q, K"], "a")
    p.labelled(320, 136, 140, 40, ["warpgroups 1 to 4"], "d")
    p.labelled(320, 222, 140, 36, ["T, P of four chunks"], "d")
    p.arrow((340, 84), (340, 136))
    p.text(346, 106, "pair_full", "small")
    p.arrow((430, 136), (430, 84))
    p.text(426, 124, "pair_empty", "end small")
    p.arrow((390, 176), (390, 222))
    p.arrow((320, 240), (220, 240))
    p.arrow((460, 240), (560, 240))
    p.text(270, 232, "even n", "middle small")
    p.text(510, 232, "odd n", "middle small")
    p.arrow((220, 156), (320, 156))
    p.arrow((560, 156), (460, 156))
    p.text(270, 148, "slot_free", "middle small")
    p.text(510, 148, "slot_free", "middle small")
    p.arrow((100, 258), (100, 322), (700, 322), (700, 258))
    p.arrow((620, 258), (620, 296), (180, 296), (180, 258))
    p.text(390, 290, "odd n, passed on", "middle small")
    p.text(390, 316, "even n, passed on", "middle small")
    p.lines(
        10,
        350,
        [
            "An arrow bears the name of the mbarrier at which its receiver waits. Arrows between blocks are pushes: T and P of a",
            "chunk, 20 KB, or at slot_free a message of 16 bytes: the chain has read this slot, and the push to its block is over.",
        ],
        "small soft",
        18,
    )
    return p


def segment_maps() -> Picture:
    p = Picture(
        "segment_maps", 770, 310, "Four segments walked at once, twice",
        "Kernel 1: segments 0 to 2 walk the values V from zeros, segment 0 from S_0, to H; segments 1 and 2 also walk the values -K "
        "to Psi. Kernel 2: from left to right S becomes S + Psi S + H. Kernel 3: all four segments walk with outputs, each from its "
        "start.",
    )  # fmt: skip
    x0, width = 110, 158
    for row, name in ((50, "kernel 1"), (146, "kernel 2"), (216, "kernel 3")):
        p.text(x0 - 24, row + 24, name, "end bold")
    for m in range(4):
        x = x0 + width * m
        p.text(x + 70, 22, f"segment {m}", "middle small soft")
        if m < 3:
            p.labelled(x, 36, 140, 34, [f"V, from {'S_0' if m == 0 else '0'}: H_{m}"], "b")
            if m:
                p.labelled(x, 76, 140, 34, [f"-K, from 0: Psi_{m}"], "d")
        p.labelled(x, 226, 140, 40, ["V, from its start:", "o"], "c")
    p.arrow((x0 - 22, 256), (x0, 256))
    p.text(x0 - 28, 260, "S_0", "end small mono")
    starts = ("", "H_0", "S + Psi_1 S + H_1", "S + Psi_2 S + H_2")
    for m in range(1, 4):
        x = x0 + width * m
        p.labelled(x, 146, 140, 36, [starts[m]], "a", "middle small mono")
        p.arrow((x + 70, 182), (x + 70, 226))
        if m > 1:
            p.arrow((x - 18, 164), (x, 164))
        if m == 1:
            p.arrow((x - 38, 70), (x + 14, 146))
        else:
            p.arrow((x - 40, 110), (x - 40, 130), (x + 14, 130), (x + 14, 146))  # Psi
            p.arrow((x - 18, 53), (x - 9, 53), (x - 9, 120), (x + 40, 120), (x + 40, 146))  # H
    p.arrow((x0 + width * 3 + 140, 246), (x0 + width * 3 + 160, 246))
    p.text(x0 + width * 3 + 164, 250, "S_L", "small mono")
    p.text(x0, 292, "8 heads of 16384 positions: 8 segments. 2 x 32 chunks and 6 short steps instead of 256 chunks", "small soft")
    return p


MAP_HEADS = (4, 8, 16, 24, 32, 48, 64, 72, 96, 128, 192, 256)
MAP_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 16384)
# What plan.cpp chooses on an H200 (132 multiprocessors): a number is that of segments, K one_kernel, C cluster, T
# three_blocks, B one_block.
MAP = (
    "K K 1 1 1 8 11 16",
    "K K 1 1 1 8 8 8",
    "K K 1 1 1 4 4 4",
    "K K 1 1 1 T T T",
    "K K 1 1 T T T T",
    "K K K C C C C C",
    "K K K C C C C C",
    "K B B B T T T T",
    "K B B B B B B B",
    "K K B B B B B B",
    "K C C C C C C C",
    "K B B B B B B B",
)
MAP_KINDS = {"K": ("paper", "one_kernel"), "C": ("c", "cluster"), "T": ("b", "three_blocks"), "B": ("d", "one_block")}


def delta_map() -> Picture:
    p = Picture(
        "delta_map", 760, 470, "Which kernel for how many heads and positions",
        "A table of heads, 4 to 256, and positions, 64 to 16384. Up to 128 positions one_kernel. Up to about 20 heads segments: one "
        "up to 1024 positions, then 4 to 16. From there to 39 heads three_blocks from 1024 or 2048 positions on. 40 to 66 heads "
        "cluster. 67 to 78 heads three_blocks from 1024 positions on, else one_block. 79 to 132 heads one_block. 192 heads "
        "cluster, 256 heads one_block.",
    )  # fmt: skip
    x0, y0, width, height = 76, 56, 84, 30
    p.text(x0 + 4 * width, 20, "positions", "middle bold")
    p.text(x0 - 10, 46, "heads", "end bold")
    for i, length in enumerate(MAP_LENGTHS):
        p.text(x0 + width * i + width / 2, 44, str(length), "middle small")
    for r, (heads, row) in enumerate(zip(MAP_HEADS, MAP)):
        y = y0 + height * r
        p.text(x0 - 10, y + 20, str(heads), "end")
        for i, choice in enumerate(row.split()):
            if choice in MAP_KINDS:
                kind, text = MAP_KINDS[choice]
            else:
                kind, text = "a", "1 segment" if choice == "1" else f"{choice} segments"
            p.labelled(x0 + width * i, y, width, height, [text], kind)
    p.lines(
        10,
        y0 + 12 * height + 22,
        [
            "Heads are B times H, Dk = Dv = 128, an H200. With its 132 multiprocessors the borders lie at 39 clusters of three,",
            "66 clusters of two (and 198, in three rounds) and 132 blocks.",
        ],
        "small soft",
        18,
    )
    return p


def delta_gradient_walks() -> Picture:
    p = Picture(
        "delta_gradient_walks", 770, 300, "Two walks, then all chunks at once",
        "Four chunks of many in a row. Above, a walk from the left carries S and leaves S and v_new of each chunk. Below, a walk from "
        "the right carries dS and leaves dS and dV. In the middle each chunk takes what both have left and computes dq, dk and "
        "dbeta on its own.",
    )  # fmt: skip
    x0, width = 130, 158
    p.text(116, 60, "forwards", "end bold")
    p.text(116, 76, "S", "end small mono")
    p.text(116, 156, "all at once", "end bold")
    p.text(116, 246, "backwards", "end bold")
    p.text(116, 262, "dS", "end small mono")
    for n in range(4):
        x = x0 + width * n
        p.text(x + 66, 18, f"chunk {n}" if n < 3 else "the last chunk", "middle small soft")
        p.labelled(x, 34, 132, 46, ["Res = V - K S", "v_new = T Res"], "a")
        p.labelled(x, 132, 132, 46, ["dq, dk, dbeta"], "c", "middle")
        p.labelled(x, 228, 132, 46, ["dv_new = K dS + ...", "dV = Tᵀ dv_new"], "d")
        p.arrow((x + 40, 80), (x + 40, 132))
        p.text(x + 48, 110, "S, v_new", "small")
        p.arrow((x + 40, 228), (x + 40, 178))
        p.text(x + 48, 208, "dS, dV", "small")
        if n < 3:
            p.arrow((x + 132, 57), (x + width, 57))
            p.arrow((x + width, 251), (x + 132, 251))
    p.arrow((x0 + 4 * width - 4, 251), (x0 + 4 * width - 26, 251))
    p.text(10, 294, "Neither walk reads what the other writes, so one launch can have both.", "small soft")
    return p


def gradient_pairs() -> Picture:
    p = Picture(
        "gradient_pairs", 780, 290, "The last kernel takes 128 positions at a time",
        "On the left, two chunks of 64: two triangles of scores, and states S and dS stored for each chunk, 1024 bytes per position. "
        "On the right the same 128 positions as one chunk: the two triangles and a full square below the diagonal, and states "
        "stored before the first and after the last, 512 bytes per position.",
    )  # fmt: skip
    for x0, title, joined in ((56, "chunks of 64", False), (430, "chunks of 128", True)):
        side, y0 = 96, 56
        p.text(x0 + 96, 22, title, "middle bold")
        p.box(x0, y0, 192, 192, "line", 0)
        for n in range(2):
            x, y = x0 + side * n, y0 + side * n
            p.polygon([(x, y), (x, y + side), (x + side, y + side)], "b")
        if joined:
            p.labelled(x0, y0 + side, side, side, ["scores of", "both chunks"], "b")
        else:
            p.labelled(x0, y0 + side, side, side, ["by way", "of S"], "a")
        p.text(x0 - 8, y0 + 100, "queries", "end small soft")
        p.text(x0 + 96, y0 - 8, "keys", "middle small soft")
        lines = ["S before, dS after", "every second chunk:", "512 bytes", "per position"] if joined else [
            "S before each chunk,", "dS after each chunk:", "1024 bytes", "per position"]  # fmt: skip
        p.lines(x0 + 204, y0 + 60, lines, "small")
    p.text(10, 278, "T needs chunks of 64. v_new and dV contain T already, so the last kernel is free to take longer ones.", "small soft")
    return p


def grouped_heads() -> Picture:
    p = Picture(
        "grouped_heads", 720, 250, "Two groups of two heads, as strides",
        "Four heads of v lie one behind the other in memory, and two heads of q. Group 0 has heads 0 and 1 of v, and both use "
        "head 0 of q. Group 1 has heads 2 and 3, which use head 1 of q. From head to head v takes a step of one head, and q a step "
        "of zero. From group to group v takes a step of two heads, and q of one.",
    )  # fmt: skip
    x0, width, gap = 120, 140, 6
    p.text(10, 66, "v", "bold")
    p.text(10, 84, "[B, H = 4, L, Dv]", "small soft")
    p.text(10, 206, "q, k", "bold")
    p.text(10, 224, "[B, Hk = 2, L, Dk]", "small soft")
    for group, kind in enumerate(("a", "b")):
        left = x0 + group * 2 * (width + gap)
        p.text(left + width + gap / 2, 22, f"group {group}", "middle bold")
        for h in range(2):
            p.labelled(left + h * (width + gap), 46, width, 44, [f"head {2 * group + h}"], kind)
        p.labelled(left + (width + gap) / 2, 186, width, 44, [f"head {group}"], kind)
        for h in range(2):
            p.arrow((left + h * (width + gap) + width / 2, 92), (left + width + gap / 2 + (h - 0.5) * 36, 184))
        p.text(left + width + gap / 2, 120, "stride of heads: 0", "middle small")
    return p


DRAWINGS = (
    overwrite,
    chunk_transition,
    inverse,
    split_number,
    delta_chain,
    scores_roles,
    cluster_push,
    cluster_turns,
    three_blocks_waits,
    segment_maps,
    delta_map,
    delta_gradient_walks,
    gradient_pairs,
    grouped_heads,
)
