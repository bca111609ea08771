"""The drawings of chapter 01, linear attention."""

from svg import Picture


def rnn() -> Picture:
    p = Picture(
        "rnn", 720, 300, "Linear attention as a recurrent network",
        "A row of states S_t-1, S_t and S_t+1, each a matrix of Dk rows and Dv columns. Between two of them the outer product "
        "of the key k_t and the value v_t is added. From each state the query q_t reads the output o_t.",
    )  # fmt: skip
    for i, name in enumerate(("t-1", "t", "t+1")):
        x = 60 + 240 * i
        p.box(x, 110, 84, 84, "a", 0)
        for j in range(1, 4):
            p.line(x + 21 * j, 110, x + 21 * j, 194, "faint")
            p.line(x, 110 + 21 * j, x + 84, 110 + 21 * j, "faint")
        p.text(x + 42, 158, f"S_{name}", "middle mono bold")
        p.arrow((x + 42, 194), (x + 42, 236))
        p.labelled(x + 2, 238, 80, 26, [f"o_{name}"], "c", "middle mono")
        p.text(x - 6, 224, f"q_{name}", "end mono")
        p.arrow((x, 220), (x + 36, 220))
        if i < 2:
            following = ("t", "t+1")[i]
            p.arrow((x + 84, 152), (x + 150, 152))
            p.add(f'<circle class="paper" cx="{x + 162}" cy="152" r="12"/>')
            p.text(x + 162, 157, "+")
            p.arrow((x + 174, 152), (x + 240, 152))
            p.labelled(x + 92, 58, 140, 32, [f"k_{following}ᵀ v_{following}"], "b", "middle mono")
            p.arrow((x + 162, 90), (x + 162, 140))
            p.text(x + 128, 36, f"k_{following}", "middle mono")
            p.text(x + 196, 36, f"v_{following}", "middle mono")
            p.arrow((x + 128, 41), (x + 136, 58))
            p.arrow((x + 196, 41), (x + 188, 58))
    p.text(60, 96, "[Dk, Dv]", "small soft")
    p.lines(10, 20, ["written: the outer", "product of key and value"], "small soft")
    p.text(10, 288, "read: a query times the state", "small soft")
    p.arrow((624, 152), (700, 152))
    return p


def multiprocessor() -> Picture:
    p = Picture(
        "multiprocessor", 780, 500, "A GPU, and one of its multiprocessors",
        "Left 132 small boxes, the multiprocessors of an H200. One of them is opened: four schedulers, each with room for 16 warps "
        "and 16384 registers. A block of 64 threads is in it, two warps: two schedulers have one warp each, two have none. Below "
        "the registers, about 30 clocks away, is shared memory in 32 banks, and the first-level cache. Below the multiprocessors "
        "are the second-level cache and device memory, 600 to 900 clocks away. A dashed arrow leads from the registers to device "
        "memory: that is where values go that do not fit.",
    )  # fmt: skip
    p.text(10, 18, "an H200: 132 multiprocessors", "bold")
    for i in range(132):
        p.box(12 + 15 * (i % 12), 30 + 15 * (i // 12), 12, 12, "b" if i == 11 else "paper", 1)
    p.arrow((189, 36), (230, 36))
    p.text(500, 18, "one multiprocessor, with one block of 64 threads", "middle bold")
    p.box(230, 28, 540, 330)
    for i in range(4):
        x = 244 + 131 * i
        p.labelled(x, 40, 119, 30, [f"scheduler {i}"])
        for slot in range(16):
            busy = slot == 0 and i < 2
            p.box(x + 5 + 14 * (slot % 8), 80 + 14 * (slot // 8), 11, 11, "b" if busy else "paper", 1)
        p.text(x + 59, 122, ("warp 0: threads 0-31", "warp 1: 32-63", "no warp: idle", "no warp: idle")[i], "middle small")
        p.labelled(x, 132, 119, 40, ["16384 registers", "of 4 bytes"], "d")
    p.arrow((494, 208), (494, 172))
    p.arrow((506, 172), (506, 208))
    p.text(514, 196, "about 30 clocks", "small")
    p.text(244, 201, "shared memory, in 32 banks", "small")
    p.text(756, 201, "227 KB for a block", "end small")
    for bank in range(32):
        p.box(244 + 16 * bank, 210, 16, 40, "c", 0)
        if bank < 4 or bank == 31:
            p.text(252 + 16 * bank, 235, str(bank), "middle small")
    p.lines(500, 268, ["each bank delivers 4 bytes per clock; lanes that want", "different words of the same bank wait for each other"])
    p.labelled(244, 300, 512, 44, ["first-level cache: what shared memory", "leaves of their common 256 KB"], "c")
    p.arrow((500, 382), (500, 344))
    p.labelled(10, 382, 760, 34, ["second-level cache, 50 MB: for all multiprocessors"], "c")
    p.arrow((500, 440), (500, 416))
    p.labelled(10, 440, 760, 46, ["device memory, 141 GB: 600 to 900 clocks away,", "4.2 TB/s for a copy"], "a")
    p.arrow((244, 152), (214, 152), (214, 440), kind="line dashed")
    p.lines(204, 250, ["spill: values that do not", "fit into a thread's", "registers, 255 at most, go", "to local memory: here"], "end small")
    return p


def state_owners() -> Picture:
    p = Picture(
        "state_owners", 780, 280, "Which block and which thread has which part of the state",
        "Four squares, each the state of a head, 64 rows of Dk and 64 columns of Dv. atomic: eight blocks, each with 8 rows. registers and "
        "lmha: one block, each thread with a column. lmha_low_occupancy: 64 blocks, each with one column. The lmha of dispatch: two "
        "blocks of 32 columns, and two threads share a column, four rows each in turn.",
    )  # fmt: skip
    side, top = 144, 56
    titles = (["atomic"], ["registers, lmha"], ["lmha_low_occupancy"], ["dispatch, 32 heads"])
    below = (
        ["8 blocks per head, 8 rows", "each; one thread per", "column; all blocks add", "to the same o_t"],
        ["1 block per head;", "one thread per column,", "which is in its registers"],
        ["64 blocks per head, one", "column each; lanes along", "Dk, warps along time"],
        ["2 blocks per head, 32", "columns each; two threads", "per column, which take", "four rows each in turn"],
    )
    for i in range(4):
        x = 36 + 190 * i
        p.text(x + side / 2, 20, titles[i][0], "middle mono bold")
        p.text(x + side / 2, 46, "Dv columns", "middle small soft")
        p.box(x, top, side, side, "paper", 0)
        p.lines(x + side / 2, top + side + 20, below[i])
    p.text(26, top + side / 2, "Dk rows", "middle small soft", turn=-90)
    x = 36
    for block in range(8):
        p.box(x, top + 18 * block, side, 18, "ab"[block % 2], 0)
        p.text(x + side / 2, top + 18 * block + 13, f"block {block}", "middle small")
    x += 190
    p.box(x, top, side, side, "a", 0)
    for line in range(1, 16):
        p.line(x + 9 * line, top, x + 9 * line, top + side, "faint")
    p.box(x + 45, top, 9, side, "d", 0)
    p.labelled(x + 62, top + 58, 62, 24, ["thread j"])
    p.arrow((x + 62, top + 70), (x + 54, top + 70))
    x += 190
    for line in range(16):
        p.box(x + 9 * line, top, 9, side, "a" if line % 2 == 0 else "b", 0)
    p.labelled(x + 62, top + 58, 62, 24, ["block j"])
    p.arrow((x + 62, top + 70), (x + 50, top + 70))
    x += 190
    for block in range(2):
        p.box(x + 72 * block, top, 72, side, "ab"[block], 0)
        p.text(x + 72 * block + 36, top + 16, f"block {block}", "middle small")
    for part in range(16):
        p.box(x + 12, top + 24 + 7 * part, 9, 7, "dc"[part % 2], 0)
    for part, y in enumerate((49, 98)):
        p.labelled(x + 36, top + y - 6, 84, 24, [f"thread {part}"])
        p.arrow((x + 36, top + y + 6.5), (x + 21, top + y + 6.5))
    return p


def position_clock() -> Picture:
    p = Picture(
        "position_clock", 780, 250, "Who waits: registers and lmha over 5000 clocks",
        "Two rows on the same scale of time. registers: each position waits some 1170 clocks for its load and two barriers and computes "
        "for some 310, so that three positions and a part of the fourth fit into 5000 clocks. lmha: 16 positions of some 310 clocks "
        "each follow one another without a gap; below the first three of them the load of the next tile, at most 900 clocks, is under way.",
    )  # fmt: skip
    x0, per_clock = 96, 0.13
    p.text(10, 59, "registers", "mono")
    for position in range(4):
        x = x0 + 1480 * per_clock * position
        if position < 3:
            p.labelled(x, 36, 1170 * per_clock, 36, ["load, two barriers"], "a")
            p.labelled(x + 1170 * per_clock, 36, 310 * per_clock, 36, [str(position)], "b")
        else:
            p.labelled(x, 36, x0 + 4960 * per_clock - x, 36, ["load"], "a")
    p.arrow((x0, 24), (x0 + 1480 * per_clock, 24))
    p.text(x0 + 740 * per_clock, 18, "one position: 1480 clocks", "middle small")
    p.text(10, 141, "lmha", "mono")
    for position in range(16):
        p.labelled(x0 + 310 * per_clock * position, 118, 310 * per_clock, 36, [str(position)], "b")
    p.arrow((x0, 106), (x0 + 310 * per_clock, 106))
    p.text(x0 + 310 * per_clock + 8, 110, "310 clocks", "small")
    p.text(x0 + 4960 * per_clock, 110, "computing tile n, 16 positions", "end small")
    p.labelled(x0, 162, 900 * per_clock, 30, ["load of tile n+1"], "a")
    p.text(x0 + 900 * per_clock + 10, 181, "has arrived long before tile n is done: nothing waits for it", "small")
    x = x0 + 4960 * per_clock
    p.line(x, 112, x, 200, "line dashed")
    p.text(x - 6, 208, "one barrier per tile", "end small")
    p.line(x0, 222, x0 + 5000 * per_clock, 222, "faint")
    for clocks in range(0, 5001, 1000):
        p.line(x0 + clocks * per_clock, 218, x0 + clocks * per_clock, 226, "faint")
        p.text(x0 + clocks * per_clock, 242, str(clocks), "middle small soft")
    p.text(10, 242, "clocks", "small soft")
    return p


def time_in_parallel() -> Picture:
    p = Picture(
        "time_in_parallel", 780, 340, "16 positions at once, by four warps",
        "Four rows, one for each warp, with four positions each. In each warp the sums of k^T v over its own positions, up to each of "
        "them. The last is the warp's total. All totals go to shared memory; after one barrier each warp adds the state before the "
        "tile and the totals of the warps before it to its sums, and has the states of its four positions and their outputs.",
    )  # fmt: skip
    p.text(208, 20, "sums over the warp's own positions", "middle small")
    p.lines(421, 20, ["totals, in", "shared memory"])
    p.lines(574, 20, ["added to each of", "the warp's sums"])
    p.text(711, 20, "outputs", "middle small")
    p.line(484, 44, 484, 296, "line dashed")
    p.text(484, 314, "one barrier", "middle small")
    for warp in range(4):
        y = 52 + 62 * warp
        p.text(10, y + 22, f"warp {warp}", "small")
        for i in range(4):
            x = 66 + 74 * i
            first = 4 * warp
            p.labelled(x, y, 60, 34, [str(first) if i == 0 else f"{first} to {first + i}"], "a")
            p.arrow((x + 60, y + 17), (x + 74, y + 17) if i < 3 else (x + 86, y + 17))
        p.labelled(374, y, 90, 34, [f"total {warp}"], "d")
        for later in range(warp + 1, 4):
            p.line(464, y + 17, 508, 52 + 62 * later + 17, "faint")
        before = "S" if warp == 0 else "S + total 0" if warp == 1 else f"S + totals 0 to {warp - 1}"
        p.labelled(510, y, 128, 34, [before], "c")
        p.arrow((638, y + 17), (654, y + 17))
        p.labelled(656, y, 110, 34, [f"o_{4 * warp} to o_{4 * warp + 3}"], "paper", "middle small mono")
    p.text(66, 332, "“4 to 6” is the sum of k_i[d] v_i[j] over i = 4, 5, 6; each lane has the rows d = lane, lane + 32, ...", "small soft")
    return p


def adjoint() -> Picture:
    p = Picture(
        "adjoint", 720, 330, "The adjoint of a running sum is a running sum from the other end",
        "Above, a row of states S_1 to S_4: each is the one before plus k^T v of its position, from left to right, and gives an "
        "output and, backwards, dq from do. Below, a row of adjoints dS_1 to dS_4 from right to left: each is the one after plus "
        "q^T do of its position, and gives dk and dv.",
    )  # fmt: skip
    for i in range(1, 5):
        x = 110 + 150 * (i - 1)
        p.labelled(x, 86, 72, 44, [f"S_{i}"], "a", "middle mono bold")
        p.labelled(x, 206, 72, 44, [f"dS_{i}"], "d", "middle mono bold")
        p.labelled(x - 14, 28, 100, 28, [f"k_{i}ᵀ v_{i}"], "b", "middle mono")
        p.arrow((x + 36, 56), (x + 36, 86))
        p.labelled(x - 14, 280, 100, 28, [f"q_{i}ᵀ do_{i}"], "b", "middle mono")
        p.arrow((x + 36, 280), (x + 36, 250))
        p.arrow((x + 36, 130), (x + 36, 148))
        p.text(x + 36, 162, f"dq_{i}", "middle mono")
        p.arrow((x + 36, 206), (x + 36, 188))
        p.text(x + 36, 182, f"dk_{i}, dv_{i}", "middle mono")
        if i < 4:
            p.arrow((x + 72, 108), (x + 150, 108))
            p.arrow((x + 150, 228), (x + 72, 228))
    p.arrow((60, 108), (110, 108))
    p.text(48, 113, "0", "middle mono")
    p.arrow((682, 228), (632, 228))
    p.text(694, 233, "0", "middle mono")
    p.text(10, 82, "from the start", "small soft")
    p.text(710, 266, "from the end", "end small soft")
    return p


DRAWINGS = (rnn, multiprocessor, state_owners, position_clock, time_in_parallel, adjoint)
