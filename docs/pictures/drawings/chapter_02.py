"""The drawings of chapter 02, chunks."""

from svg import Picture


def chunks() -> Picture:
    p = Picture(
        "chunks", 680, 330, "The score matrix in chunks",
        "A square of queries, downwards, and keys, to the right, in four chunks each, numbered from 0. On the diagonal four "
        "blocks of C x C, of which the lower triangle is computed as scores. All blocks to the left of a diagonal block are one "
        "state: S_1 for the queries of chunk 1, S_2 for those of chunk 2, S_3 for those of chunk 3. Above the diagonal nothing "
        "is computed.",
    )  # fmt: skip
    x0, y0, side = 130, 50, 64
    p.text(x0 - 12, y0 - 12, "keys of chunk", "end small")
    for n in range(4):
        y = y0 + side * n
        p.text(x0 - 12, y + 38, "queries of chunk 0" if n == 0 else str(n), "end small")
        p.text(x0 + side * n + 32, y0 - 12, str(n), "middle small")
        if n:
            p.labelled(x0, y, side * n, side, [f"S_{n}"], "a", "middle mono bold")
        x = x0 + side * n
        p.box(x, y, side, side, "paper", 0)
        p.polygon([(x, y), (x, y + side), (x + side, y + side)], "b")
    p.box(x0, y0, 4 * side, 4 * side, "line", 0)
    x = x0 + 4 * side + 40
    p.box(x, 70, 22, 22, "b", 0)
    p.lines(x + 34, 80, ["scores, masked: the only part of", "the L x L matrix that is computed"], "small")
    p.box(x, 140, 22, 22, "a", 0)
    p.lines(
        x + 34,
        150,
        ["not computed: these keys are", "summed up in one state [Dk, Dv],", "however many they are"],
        "small",
    )
    p.box(x, 226, 22, 22, "paper", 0)
    p.lines(x + 34, 236, ["keys that come later: weight 0"], "small")
    return p


def chunk_backward() -> Picture:
    p = Picture(
        "chunk_backward", 700, 330, "The gradients of a chunk",
        "The square of queries, downwards, and keys, to the right, in four chunks each, numbered from 0. The gradient of chunk "
        "1's queries is a sum along their row: the scores in the triangle on the diagonal, and to its left the state S_1. The "
        "gradients of chunk 1's keys and values are sums along their column: the same triangle, and below it dS_2, the gradient "
        "of the state after the chunk, which stands for the queries of chunks 2 and 3.",
    )  # fmt: skip
    x0, y0, side = 130, 50, 64
    p.text(x0 - 12, y0 - 12, "keys of chunk", "end small")
    for n in range(4):
        y = y0 + side * n
        p.text(x0 - 12, y + 38, "queries of chunk 0" if n == 0 else str(n), "end small")
        p.text(x0 + side * n + 32, y0 - 12, str(n), "middle small")
        for m in range(4):
            p.box(x0 + side * m, y, side, side, "paper", 0)
        x = x0 + side * n
        p.line(x, y, x + side, y + side, "faint")
    p.labelled(x0, y0 + side, side, side, ["S_1"], "a", "middle mono bold")
    p.labelled(x0 + side, y0 + 2 * side, side, 2 * side, ["dS_2"], "c", "middle mono bold")
    x, y = x0 + side, y0 + side
    p.polygon([(x, y), (x, y + side), (x + side, y + side)], "b")
    p.box(x0, y0, 4 * side, 4 * side, "line", 0)
    p.arrow((x0 + 6, y + side - 8), (x0 + 2 * side - 6, y + side - 8))
    p.arrow((x + 10, y0 + 4 * side - 6), (x + 10, y + 22))
    x = x0 + 4 * side + 40
    p.box(x, 70, 22, 22, "b", 0)
    p.lines(x + 34, 80, ["inside the chunk: scores, masked", "as they are forwards"], "small")
    p.box(x, 130, 22, 22, "a", 0)
    p.lines(x + 34, 140, ["dq, along the row: the keys before", "are in one state, S"], "small")
    p.box(x, 190, 22, 22, "c", 0)
    p.lines(x + 34, 200, ["dk and dv, along the column: the", "queries after are in one gradient", "of the state, dS"], "small")
    return p


def chunk_states() -> Picture:
    p = Picture(
        "chunk_states", 760, 370, "All chunks at once, their states in device memory",
        "Four columns, one per chunk. Kernel 1 computes K^T V of all chunks at once and writes them to device memory. Kernel 2 "
        "reads them, adds them up from left to right and writes the state that each chunk starts from. Kernel 3 reads these "
        "states and computes the outputs of all chunks at once. So each state crosses device memory four times.",
    )  # fmt: skip
    for y, lines in ((44, ["kernel 1:", "all at once"]), (180, ["kernel 2:", "in line"]), (322, ["kernel 3:", "all at once"])):
        p.lines(16, y, lines, "small")
    for y in (117, 257):
        p.lines(16, y - 6, ["device memory"], "small soft")
    for n in range(4):
        x, middle = 140 + 156 * n, 140 + 156 * n + 64
        p.labelled(x, 22, 128, 40, [f"chunk {n}"], "b")
        p.labelled(x, 94, 128, 32, [f"K_{n}ᵀ V_{n}"], "a", "middle small mono")
        p.labelled(x, 236, 128, 32, [f"S_{n}"], "a", "middle small mono")
        p.labelled(x, 308, 128, 40, [f"O_{n} from", f"Q_{n}, K_{n}, V_{n}, S_{n}"], "b")
        p.arrow((middle, 62), (middle, 94))
        p.arrow((middle, 268), (middle, 308))
        p.arrow((middle - 24, 214), (middle - 24, 236))
        p.line(middle - 24, 181, middle - 24, 214)
        if n < 3:
            p.add(f'<circle class="paper" cx="{middle + 36}" cy="181" r="12"/>')
            p.text(middle + 36, 186, "+")
            p.arrow((middle + 36, 126), (middle + 36, 169))
            p.line(middle + 48, 181, middle + 132, 181)
            p.line(middle - 24, 181, middle + 24, 181)
        if n == 0:
            p.text(middle - 58, 186, "S_0", "middle small mono")
            p.arrow((middle - 44, 181), (middle - 26, 181))
    for y, x, words in ((82, 214, "1 written"), (154, 250, "2 read"), (228, 190, "3 written"), (294, 214, "4 read")):
        p.text(x, y, words, "small soft")
    return p


def chunk_bytes() -> Picture:
    p = Picture(
        "chunk_bytes", 760, 226, "Bytes of a chunk",
        "Bars for the bytes that a chunk of 64 positions of one head moves, Dk = Dv = 128. In fp32: with states in memory 128 KB of "
        "q, k, v and o, 64 of K and V again and 256 of states, together 448; with the state on the chip 128. In bf16: 64, 32 and "
        "256, together 352; with the state on the chip 64.",
    )  # fmt: skip
    rows = (
        ("fp32, states in memory", (128, 64, 256)),
        ("fp32, state on the chip", (128,)),
        ("bf16, states in memory", (64, 32, 256)),
        ("bf16, state on the chip", (64,)),
    )
    scale, x0 = 1.15, 172
    for i, (name, parts) in enumerate(rows):
        y, x = 18 + 40 * i, x0
        p.text(x0 - 12, y + 18, name, "end small")
        for kilobytes, kind in zip(parts, ("b", "c", "a"), strict=False):
            p.labelled(x, y, kilobytes * scale, 28, [str(kilobytes)], kind)
            x += kilobytes * scale
        p.text(x + 10, y + 18, f"{sum(parts)} KB", "small bold")
    for x, kind, words in ((172, "b", "q, k, v and o, once"), (338, "c", "K and V again"), (474, "a", "the state, four times 64 KB")):
        p.box(x, 190, 18, 18, kind, 0)
        p.text(x + 26, 204, words, "small")
    return p


def grid(p: Picture, x, y, columns, rows, width, height) -> None:
    """Faint lines, and a frame."""
    for i in range(1, columns):
        p.line(x + i * width, y, x + i * width, y + rows * height, "faint")
    for i in range(1, rows):
        p.line(x, y + i * height, x + columns * width, y + i * height, "faint")
    p.box(x, y, columns * width, rows * height, "line", 0)


def mma_fragments() -> Picture:
    p = Picture(
        "mma_fragments", 776, 434, "Fragments: which lane holds which numbers",
        "Three matrices as grids: A with 16 rows and 16 columns, B with 16 rows and 8 columns, D with 16 rows and 8 columns. Lane 6 "
        "holds A[1][4], A[1][5] in register a[0], A[9][4], A[9][5] in a[1], A[1][12], A[1][13] in a[2], A[9][12], A[9][13] in a[3]; "
        "B[4][1], B[5][1] in b[0], B[12][1], B[13][1] in b[1]; and D[1][4], D[1][5], D[9][4], D[9][5] in d[0] to d[3]. In the upper left "
        "8 x 8 block of each matrix small numbers are the lanes: 0 to 3 share row 0 of A and of D, and column 0 of B, and so on.",
    )  # fmt: skip
    cell, y0 = 18, 58
    ax, bx, dx = 40, 408, 616
    for x, columns, name in ((ax, 16, "A, left factor"), (bx, 8, "B, right factor"), (dx, 8, "D, sums")):
        grid(p, x, y0, columns, 16, cell, cell)
        p.text(x, 22, name, "bold")
        p.line(x, y0 + 8 * cell, x + columns * cell, y0 + 8 * cell)
        if columns == 16:
            p.line(x + 8 * cell, y0, x + 8 * cell, y0 + 16 * cell)

    def place(x, row, column, rows, columns, kind, words):
        p.labelled(x + column * cell, y0 + row * cell, columns * cell, rows * cell, [words], kind)

    for lane in range(32):  # the block in the upper left corner of each matrix
        row, pair = lane // 4, lane % 4
        if lane != 6:
            for x in (ax, dx):
                p.box(x + 2 * pair * cell, y0 + row * cell, 2 * cell, cell, "paper", 0)
                p.text(x + (2 * pair + 1) * cell, y0 + row * cell + 13, str(lane), "middle small soft")
            p.box(bx + row * cell, y0 + 2 * pair * cell, cell, 2 * cell, "paper", 0)
            p.text(bx + row * cell + 9, y0 + (2 * pair + 1) * cell + 4, str(lane), "middle small soft")
    for i, (row, column) in enumerate(((1, 4), (9, 4), (1, 12), (9, 12))):
        place(ax, row, column, 1, 2, "b", f"a[{i}]")
    for i, row in enumerate((4, 12)):
        x, y = bx + cell, y0 + row * cell
        p.box(x, y, cell, 2 * cell, "b")
        p.text(bx + 8 * cell + 8, y + 22, f"b[{i}]", "small")
    for i, (row, column) in enumerate(((1, 4), (1, 5), (9, 4), (9, 5))):
        x, y = dx + column * cell, y0 + row * cell
        p.box(x, y, cell, cell, "c", 0)
        p.text(x + 9, y + 13, str(i), "middle small")
    for x, columns in ((ax, (4, 5, 12, 13)), (bx, (1,)), (dx, (4, 5))):
        for column in columns:
            p.text(x + column * cell + 9, y0 - 6, str(column), "middle small soft")
    for x, rows in ((ax, (1, 9)), (bx, (4, 5, 12, 13)), (dx, (1, 9))):
        for row in rows:
            p.text(x - 5, y0 + row * cell + 13, str(row), "end small soft")
    p.lines(ax, 370, ["4 registers of two bf16:", "32 lanes x 8 numbers = 16 x 16"], "small")
    p.lines(bx, 370, ["2 registers of two bf16:", "32 x 4 = 16 x 8"], "small")
    p.lines(dx, 370, ["d[0] to d[3], in fp32:", "32 x 4 = 16 x 8"], "small")
    p.text(ax, 420, "grey numbers: the lane that holds the two numbers; every block of 8 x 8 is divided in the same way", "small soft")
    return p


def ldmatrix() -> Picture:
    p = Picture(
        "ldmatrix", 760, 322, "What ldmatrix gives to which lane",
        "Twice a matrix of 8 rows and 8 columns of 16-bit numbers. Lanes 0 to 7 give the addresses of rows 0 to 7. As stored, row r "
        "goes to lanes 4r to 4r + 3, two neighbouring columns to each: lane 6 gets columns 4 and 5 of row 1. With _trans, column c "
        "goes to lanes 4c to 4c + 3, two neighbouring rows to each: lane 6 gets rows 4 and 5 of column 1.",
    )  # fmt: skip
    cell, y0, left, right = 28, 64, 112, 500
    p.text(left, 24, "ldmatrix: pairs of a row", "bold")
    p.text(right, 24, "_trans: pairs of a column", "bold")
    for x in (left, right):
        for i in range(8):
            p.text(x + i * cell + 14, y0 - 8, str(i), "middle small soft")
            p.text(x - 36, y0 + i * cell + 18, f"lane {i}", "end small")
            p.arrow((x - 31, y0 + i * cell + 14), (x - 4, y0 + i * cell + 14))
    for i in range(8):
        for pair in range(4):
            lane = 4 * i + pair
            p.labelled(left + 2 * pair * cell, y0 + i * cell, 2 * cell, cell, [str(lane)], "b" if lane == 6 else "paper")
            p.labelled(right + i * cell, y0 + 2 * pair * cell, cell, 2 * cell, [str(lane)], "b" if lane == 6 else "paper")
    p.text(left, 312, "in a box: the lane that gets the two numbers", "small soft")
    p.text(right, 312, "the same rows in memory", "small soft")
    return p


def places(p: Picture, x, y, lines, unit_at) -> None:
    """Lines of 128 bytes as eight places of four banks; unit 0 of each row is coloured."""
    width, height = 38, 24
    for place in range(8):
        p.text(x + place * width + 19, y - 8, str(place), "middle small soft")
        for line in range(lines):
            unit = unit_at(line, place)
            kind = "b" if unit == "u0" else "paper"
            p.box(x + place * width, y + line * height, width, height, kind, 0)
            p.text(x + place * width + 19, y + line * height + 16, unit, "middle small bold" if unit == "u0" else "middle small soft")


def padded_rows() -> Picture:
    p = Picture(
        "padded_rows", 760, 330, "Eight rows over the banks of shared memory",
        "Shared memory in lines of 128 bytes, each with eight places of four banks. Left, rows of 64 bf16: unit 0 of each of the "
        "eight rows lies in place 0, so an ldmatrix that reads them takes eight turns. Right, each row is padded by 16 bytes: "
        "the units 0 lie in places 0 to 7, one turn.",
    )  # fmt: skip
    p.text(52, 22, "plain: 8 turns", "bold")
    p.text(444, 22, "padded by 16 bytes: 1 turn", "bold")
    places(p, 52, 66, 8, lambda line, place: f"u{place}")

    def padded(line, place):
        unit = (8 * line + place) % 9
        return "pad" if unit == 8 else f"u{unit}"

    places(p, 444, 66, 9, padded)
    p.text(52, 44, "place = group of four banks", "small soft")
    p.text(444, 44, "place", "small soft")
    for row in range(8):
        p.text(44, 82 + 24 * row, f"row {row}", "end small")
    p.text(52, 316, "u0: the 16 bytes of each row that one ldmatrix reads", "small")
    return p


def swizzled_rows() -> Picture:
    p = Picture(
        "swizzled_rows", 760, 292, "Swizzled rows",
        "Eight rows of 64 bf16, each over eight places of four banks. Unit u of row r lies in place u xor r. So the units 0 of the "
        "eight rows lie in the places 0 to 7, and so do the units u for every other u. No place is empty.",
    )  # fmt: skip
    places(p, 60, 60, 8, lambda line, place: f"u{place ^ line}")
    p.text(60, 36, "place = group of four banks", "small soft")
    for row in range(8):
        p.text(52, 76 + 24 * row, f"row {row}", "end small")
    p.lines(
        410,
        84,
        [
            "Unit u of row r lies in place u xor (r mod 8).",
            "",
            "Row 5 = 101 in binary:",
            "unit 0 lies in place 101 = 5,",
            "unit 3 = 011 lies in place 110 = 6.",
            "",
            "The same unit of all eight rows lies in",
            "eight different places: one turn.",
        ],
        "small",
        20,
    )
    return p


def state_stays() -> Picture:
    p = Picture(
        "state_stays", 760, 340, "A sum becomes an operand",
        "Left, a tile of S transposed as sums of S^T += V^T K: lane 6 holds row 1, columns 4 and 5. Right, a tile of S as right factor "
        "of O += Q S: lane 6 holds column 1, rows 4 and 5. These are the same two numbers. An arrow between them says: rounded to "
        "bf16 and packed into one register.",
    )  # fmt: skip
    cell, y0, left, right = 26, 76, 60, 490
    p.text(left, 24, "Sᵀ += Vᵀ K: lane 6's sums", "bold")
    p.text(right, 24, "O += Q S: lane 6's operand", "bold")
    for x, across, down in ((left, "d", "j"), (right, "j", "d")):
        grid(p, x, y0, 8, 8, cell, cell)
        for i in range(8):
            p.text(x + i * cell + 13, y0 - 8, str(i), "middle small soft")
            p.text(x - 8, y0 + i * cell + 17, str(i), "end small soft")
        p.text(x + 4 * cell, y0 - 26, f"{across}, {'row' if across == 'd' else 'column'} of the state", "middle small")
        p.text(x - 30, y0 + 4 * cell, down, "middle small")
    for i in range(2):
        p.box(left + (4 + i) * cell, y0 + cell, cell, cell, "b", 0)
        p.box(right + cell, y0 + (4 + i) * cell, cell, cell, "b", 0)
    p.text(left, y0 + 8 * cell + 20, "S[4][1] and S[5][1] in fp32", "small")
    p.text(right, y0 + 8 * cell + 20, "the same two in bf16, in one register", "small")
    p.arrow((left + 6 * cell, y0 + 1.5 * cell), (380, y0 + 1.5 * cell), (380, y0 + 5 * cell), (right + cell - 2, y0 + 5 * cell))
    p.lines(372, y0 + 3 * cell, ["pack()"], "end mono")
    p.lines(left, 324, ["one corner of the tiles; the other registers fit in the same way"], "small soft")
    return p


def load_ahead() -> Picture:
    p = Picture(
        "load_ahead", 760, 236, "Loads beside products",
        "Above, tensor_core: loads and products of chunks 0, 1, 2 alternate in one row of time. Below, pipelined: copies of chunks 0 "
        "to 4 in one row, products of chunks 0 to 3 in the next, each beside the copies of the chunk after it. Before each "
        "product stand a wait and a block barrier.",
    )  # fmt: skip
    p.text(16, 46, "tensor_core", "small bold")
    x = 130
    for n in range(3):
        p.labelled(x, 26, 100, 32, [f"load {n}"], "a")
        p.labelled(x + 100, 26, 90, 32, [f"products {n}"], "b")
        x += 190
    p.text(16, 116, "pipelined", "small bold")
    p.text(16, 146, "copies", "small")
    p.text(16, 186, "products", "small")
    for n in range(5):
        p.labelled(130 + 106 * n, 126, 100, 32, [f"copy {n}"], "a")
    for n in range(4):
        x = 130 + 106 * (n + 1)
        p.labelled(x, 166, 90, 32, [f"products {n}"], "b")
        p.line(x - 3, 120, x - 3, 204, "line dashed")
    p.text(233, 224, "at each dashed line: wait for the copy, block barrier, start the next copy", "small soft")
    return p


def segments_at_once() -> Picture:
    p = Picture(
        "segments_at_once", 760, 330, "Segments that are walked at once",
        "Four segments in columns. Kernel 1 sums up k^T v of segments 0 to 2, at once, from K and V. Kernel 2 adds these sums up from left "
        "to right, starting with S_0. Kernel 3 walks all four segments at once, each from its own start, chunk after chunk.",
    )  # fmt: skip
    p.lines(16, 46, ["kernel 1:", "reads K, V"], "small")
    p.lines(16, 144, ["kernel 2:", "running sum"], "small")
    p.lines(16, 244, ["kernel 3:", "reads Q, K, V,", "writes O"], "small")
    for m in range(4):
        x, middle = 130 + 158 * m, 130 + 158 * m + 68
        if m < 3:
            p.labelled(x, 24, 136, 44, [f"segment {m}:", "Kᵀ V summed up"], "b")
            p.add(f'<circle class="paper" cx="{middle + 36}" cy="148" r="12"/>')
            p.text(middle + 36, 153, "+")
            p.arrow((middle + 36, 68), (middle + 36, 136))
            p.line(middle + 48, 148, middle + 138, 148)
            p.line(middle - 20, 148, middle + 24, 148)
        p.arrow((middle - 20, 148), (middle - 20, 226))
        p.text(middle - 14, 206, "start", "small soft")
        for i in range(8):
            p.box(x + 17 * i, 228, 17, 34, "b", 0)
        p.arrow((x + 4, 276), (x + 132, 276))
        p.text(middle, 296, f"segment {m}", "middle small")
    p.text(146, 153, "S_0", "middle small mono")
    p.arrow((160, 148), (176, 148))
    return p


def mbarrier_phases() -> Picture:
    p = Picture(
        "mbarrier_phases", 776, 372, "Phases of the two mbarriers of slot 0",
        "Time to the right. The filler waits for parity 1 at empty, which passes at once, and copies chunk 0 into slot 0. When the bytes "
        "have come, phase 0 of full ends, and the reader's wait(0) returns. When the reader is done, it arrives at empty, whose phase 0 "
        "ends. The filler's wait(0) returns and it copies chunk 2; phase 1 of full ends when that has come, and the reader's wait(1) "
        "returns. In the next round the parities are those of the first.",
    )  # fmt: skip
    for y, words in ((66, "fills slot 0"), (136, "full[0]"), (206, "reads slot 0"), (276, "empty[0]")):
        p.text(12, y + 4, words, "small mono" if "[" in words else "small")

    def band(y, borders, dashed=False):
        for phase, (begin, end) in enumerate(zip(borders, borders[1:], strict=False)):
            p.box(begin, y - 16, end - begin, 32, "d" if phase % 2 else "paper")
            left = 104 if dashed and phase in (1, 2) else 6  # right of the dashed arrows, where they cross the band
            p.text(begin + left, y + 4, f"phase {phase}: {'odd' if phase % 2 else 'even'}", "small")

    band(136, (112, 252, 462, 672, 768), dashed=True)
    band(276, (112, 342, 552, 768))
    for n, x in ((0, 172), (2, 382), (4, 592)):
        p.labelled(x + 4, 50, 76, 32, [f"copy {n}"], "a")
        p.arrow((x + 80, 82), (x + 80, 120))
        p.arrow((x + 80, 152), (x + 80, 190))
        p.labelled(x + 80, 190, 86, 32, [f"chunk {n}"], "b")
        if n < 4:
            p.arrow((x + 166, 222), (x + 166, 260))
            p.arrow((x + 176, 260), (x + 176, 84), kind="line dashed")
    for x, end, parity in ((112, 252, 0), (350, 462, 1), (560, 672, 0)):
        p.labelled(x, 192, end - x, 28, [f"wait({parity})"], "line dashed", "middle small mono")
    p.labelled(112, 52, 60, 28, ["wait(1)"], "line dashed", "middle small mono")
    p.labelled(266, 52, 76, 28, ["wait(0)"], "line dashed", "middle small mono")
    p.labelled(476, 52, 76, 28, ["wait(1)"], "line dashed", "middle small mono")
    p.text(112, 34, "passes at once: phase 0 of empty[0] runs, and it is even", "small soft")
    p.arrow((690, 28), (768, 28))
    p.text(684, 32, "time", "end small soft")
    p.lines(
        12,
        326,
        [
            "wait(0) returns as soon as the phase that runs is odd, wait(1) as soon as it is even.",
            "A copy of 40 KB ends a phase of full by its bytes; readers end a phase of empty by their arrivals.",
        ],
        "small",
        20,
    )
    return p


def warpgroup_product() -> Picture:
    p = Picture(
        "warpgroup_product", 776, 236, "Who holds what of a product of a warpgroup",
        "The product S^T Q^T = O^T. Left the factor A = S^T with 64 rows, which lies in registers, 16 rows in each of four warps. In the "
        "middle the factor B = Q^T, which all four warps read from shared memory. Right the sums D = O^T with 64 rows, 16 rows in each warp's "
        "registers.",
    )  # fmt: skip
    for x, name in ((88, "A = Sᵀ, rounded"), (330, "B = Qᵀ"), (576, "D = Oᵀ, sums")):
        p.text(x, 24, name, "bold")
    for w in range(4):
        y = 52 + 34 * w
        p.text(80, y + 21, f"warp {w}", "end small")
        p.labelled(88, y, 150, 34, ["16 rows"], "c")
        p.labelled(576, y, 150, 34, ["16 rows"], "c")
    p.labelled(330, 70, 150, 100, ["read once", "for four warps"], "a")
    p.text(284, 126, "x", "middle")
    p.text(528, 126, "=", "middle")
    for x, words in ((88, "registers (or shared memory)"), (330, "shared memory"), (576, "registers")):
        p.text(x, 210, words, "small soft")
    return p


def two_proxies() -> Picture:
    p = Picture(
        "two_proxies", 776, 246, "Two ways to shared memory",
        "Left the threads, with loads, stores and ldmatrix. Right the async proxy: the copy engine and the tensor cores that run wgmma. "
        "Between them shared memory with the tile P. A store of P may still be on its way when wgmma reads. Below, the order that is right: "
        "store P, fence.proxy.async, block barrier, wgmma reads P.",
    )  # fmt: skip
    p.labelled(16, 30, 190, 72, ["threads:", "loads, stores, ldmatrix"], "b")
    p.labelled(318, 30, 140, 72, ["shared memory", "P"], "a")
    p.labelled(570, 30, 190, 72, ["async proxy:", "copy engine, wgmma"], "c")
    p.arrow((206, 66), (316, 66))
    p.arrow((570, 66), (460, 66))
    p.lines(261, 36, ["a store may", "still be here"], "middle small soft")
    p.text(515, 54, "reads P", "middle small soft")
    p.text(16, 150, "in order:", "small bold")
    for x, width, lines, kind in (
        (16, 160, ["each thread", "stores its part of P"], "b"),
        (210, 160, ["each thread", "fence.proxy.async"], "d"),
        (404, 160, ["all threads", "block barrier"], "paper"),
        (598, 162, ["wgmma", "reads P"], "c"),
    ):
        p.labelled(x, 168, width, 48, lines, kind)
    for x in (176, 370, 564):
        p.arrow((x, 192), (x + 33, 192))
    return p


def register_budget() -> Picture:
    p = Picture(
        "register_budget", 776, 262, "Registers per thread, before and after setmaxnreg",
        "Bars for the registers per thread of each warpgroup. specialized starts with three times 168, and then has 24 for loads, 152 "
        "for scores and 240 for the state. queued_products starts with four times 128, and then has 96 and 96 for scores, 72 for loads and "
        "stores and 240 for the state.",
    )  # fmt: skip
    x0, scale = 150, 1.2
    for y, name, start, roles in (
        (20, "specialized", (168,) * 3, ((24, "a", "24"), (152, "b", "152: scores"), (240, "c", "240: state"))),
        (
            140,
            "queued_products",
            (128,) * 4,
            ((96, "b", "96: scores"), (96, "b", "96: scores"), (72, "a", "72"), (240, "c", "240: state")),
        ),
    ):
        p.text(16, y + 20, name, "small bold")
        x = x0
        for registers in start:
            p.labelled(x, y, registers * scale, 32, [f"{registers}"], "paper")
            x += registers * scale
        x = x0
        for registers, kind, words in roles:
            p.labelled(x, y + 44, registers * scale, 32, [words], kind)
            x += registers * scale
        p.text(16, y + 64, "after setmaxnreg", "small")
    p.text(x0, 116, "24: the warpgroup of the loads", "small soft")
    p.text(x0, 236, "72: the warpgroup of loads and stores", "small soft")
    p.text(x0, 256, "each number: registers per thread of one warpgroup", "small soft")
    return p


def warpgroup_chunk() -> Picture:
    p = Picture(
        "warpgroup_chunk", 776, 222, "A chunk on one warpgroup",
        "Two rows of time for one chunk of some 2500 clocks. The tensor core computes Q K^T for 256 clocks and S^T Q^T for 288, then waits, "
        "then V^T P^T for 128 and V^T K for 256, then waits. The threads wait for the tiles and round S, wait for Q K^T, mask and store P "
        "while S^T Q^T runs, pass fence and barrier, wait for the last products, and store O.",
    )  # fmt: skip
    p.text(12, 66, "tensor core", "small")
    p.text(12, 126, "threads", "small")
    x0 = 90
    for x, width, lines in (
        (182, 72, ["Q Kᵀ", "256"]),
        (254, 81, ["Sᵀ Qᵀ", "288"]),
        (480, 40, ["VᵀPᵀ", "128"]),
        (520, 72, ["Vᵀ K", "256"]),
    ):
        p.labelled(x, 42, width, 42, lines, "b")
    for x, width, lines, kind in (
        (x0, 92, ["wait for tiles,", "round S"], "paper"),
        (182, 72, ["wait"], "line dashed"),
        (254, 226, ["mask, store P,", "fence, block barrier"], "paper"),
        (480, 112, ["wait"], "line dashed"),
        (592, 172, ["put O together", "and store it"], "paper"),
    ):
        p.labelled(x, 102, width, 42, lines, kind)
    p.line(x0, 164, x0, 178)
    p.line(764, 164, 764, 178)
    p.arrow((430, 171), (764, 171))
    p.arrow((430, 171), (x0, 171))
    p.text(432, 194, "some 2500 clocks, of which the tensor core computes for 928", "middle small")
    p.text(432, 212, "(widths of products to scale, the others not)", "middle small soft")
    return p


def walk_roles() -> Picture:
    p = Picture(
        "walk_roles", 776, 318, "Three roles and what they hand on",
        "Three rows of time. The loads' thread fills three slots with chunks 0, 1 and 2, and each further slot when it is empty. The "
        "scores' warpgroup computes P of chunks 0 and 1, and of each further chunk when one of the two slots of P is free. The state's "
        "warpgroup walks chunks 0 to 3 without a gap. Arrows: full from loads to scores, scores_full from scores to state, "
        "scores_empty back, empty from the state to the loads.",
    )  # fmt: skip
    for y, lines in ((52, ["loads", "1 thread"]), (136, ["scores", "4 warps"]), (220, ["state", "4 warps"])):
        p.lines(12, y, lines, "small")
    for n, x in ((0, 96), (1, 138), (2, 180), (3, 440), (4, 572), (5, 704)):
        p.labelled(x, 36, 42, 36, [str(n)], "a")
    for n, x in ((0, 150), (1, 214), (2, 350), (3, 486), (4, 618)):
        p.labelled(x, 120, 64, 36, [str(n)], "b")
    for n in range(4):
        x = 234 + 132 * n
        p.labelled(x, 204, 132, 36, [f"chunk {n}: O and S"], "c")
    p.arrow((138, 72), (150, 119))
    p.text(98, 100, "full", "small mono")
    p.arrow((214, 156), (234, 203))
    p.text(128, 186, "scores_full", "small mono")
    p.arrow((336, 204), (350, 157))
    p.text(240, 190, "scores_empty", "small mono")
    p.arrow((366, 203), (366, 180), (446, 180), (446, 73))
    p.text(454, 100, "empty", "small mono")
    p.lines(
        96,
        272,
        [
            "3 slots of tiles: full 1 arrival and 40 KB, empty 4 + 4 arrivals (a lane of each warp that reads)",
            "2 slots of P: scores_full 4 arrivals, scores_empty 4 arrivals",
        ],
        "small",
        20,
    )
    return p


def three_slots() -> Picture:
    p = Picture(
        "three_slots", 776, 330, "A waiter that does not see every phase",
        "With three slots, slot 0 has chunks 0, 3 and 6 in phases 0, 1 and 2 of full[0]. Warpgroup 0 reads chunks 0 and 6, warpgroup 1 reads "
        "chunk 3. While chunk 3 is not there, phase 1 runs. Warpgroup 0 waits for the end of phase 2 by wait(0), and as an odd phase "
        "runs, the wait returns at once. With four slots, slot 0 has chunks 0, 4 and 8, and warpgroup 0 reads all of them.",
    )  # fmt: skip
    p.text(12, 24, "three slots", "bold")
    p.text(12, 72, "full[0]", "small mono")
    p.labelled(96, 54, 130, 30, ["phase 0: chunk 0"], "paper")
    p.labelled(226, 54, 290, 30, ["phase 1: chunk 3, not loaded yet"], "d")
    p.labelled(516, 54, 180, 30, ["phase 2: chunk 6"], "paper")
    p.text(12, 122, "warpgroup 0", "small")
    p.labelled(150, 104, 76, 28, ["wait(0)"], "line dashed", "middle small mono")
    p.labelled(226, 104, 76, 28, ["chunk 0"], "b")
    p.labelled(372, 104, 24, 28, [""], "line dashed")
    p.text(366, 122, "wait(0)", "end small mono")
    p.labelled(396, 104, 150, 28, ["\"chunk 6\": too early"], "b")
    p.arrow((384, 104), (384, 86))
    p.arrow((696, 132), (696, 86))
    p.text(690, 148, "it should return here", "end small")
    p.text(12, 172, "warpgroup 1", "small")
    p.labelled(250, 154, 266, 28, ["wait(1) for chunk 3"], "line dashed", "middle small mono")
    p.text(226, 204, "wait(0) for chunk 6 returns at once, because the phase that runs is odd", "small soft")
    p.text(12, 240, "four slots", "bold")
    p.text(12, 276, "full[0]", "small mono")
    for i, chunk in enumerate((0, 4, 8)):
        p.labelled(96 + 200 * i, 258, 200, 30, [f"phase {i}: chunk {chunk}"], "d" if i % 2 else "paper")
    p.text(12, 316, "warpgroup 0", "small")
    for i in range(3):
        p.labelled(176 + 200 * i, 300, 120, 26, [f"wait({i % 2})"], "line dashed", "middle small mono")
    return p


def queued_products() -> Picture:
    p = Picture(
        "queued_products", 776, 418, "Who waits for whom in queued_products",
        "One thread loads into four slots of tiles. Two warpgroups, one for even chunks and one for odd ones, read Q and K there and put P "
        "into two slots. The state's warpgroup reads the tiles and P and puts O into two slots, which three warps store. Each ring has a "
        "full and an empty mbarrier per slot. Below, time: the tensor core computes O of n, V^T K of n + 1, O of n + 1, V^T K of "
        "n + 2; the state's warps meanwhile round S and queue the next V^T K, and put O of n.",
    )  # fmt: skip
    p.labelled(10, 76, 88, 52, ["loads", "1 thread"], "a")
    p.labelled(278, 32, 116, 48, ["scores, even n", "4 warps"], "b")
    p.labelled(278, 124, 116, 48, ["scores, odd n", "4 warps"], "b")
    p.labelled(534, 76, 92, 52, ["state", "4 warps"], "c")
    p.labelled(680, 196, 88, 48, ["stores", "3 warps"], "d")

    def ring(x, y, slots, name):
        for i in range(slots):
            p.box(x + 20 * i, y, 20, 24, "paper", 0)
        p.text(x + 10 * slots, y - 7, name, "middle small")

    ring(146, 90, 4, "Q, K, V")
    ring(440, 90, 2, "P")
    ring(716, 90, 2, "O")
    p.arrow((98, 102), (144, 102))
    p.arrow((228, 98), (277, 62))
    p.arrow((228, 106), (277, 142))
    p.arrow((394, 62), (438, 96))
    p.arrow((394, 142), (438, 108))
    p.arrow((482, 102), (533, 102))
    p.arrow((626, 102), (714, 102))
    p.arrow((736, 116), (736, 194))
    p.arrow((216, 116), (216, 198), (580, 198), (580, 130))
    for x, y, lines in (
        (104, 146, ["full 1 + 40 KB", "empty 4 + 4"]),
        (414, 146, ["scores_full 4", "scores_empty 4"]),
        (624, 160, ["output_full 4", "output_empty 3"]),
    ):
        p.lines(x, y, lines, "small mono")
    p.text(330, 190, "the same tiles: Q, K and V", "small soft")
    p.text(10, 226, "numbers: arrivals (and bytes) that end a phase", "small soft")

    p.text(10, 300, "tensor core", "small")
    p.text(10, 350, "state's warps", "small")
    for i, n in enumerate(("n", "n + 1")):
        x = 110 + 332 * i
        p.labelled(x, 280, 172, 34, [f"O of {n}"], "b")
        p.labelled(x + 172, 280, 132, 34, [f"Vᵀ K of {'n + 1' if i == 0 else 'n + 2'}"], "c")
        p.labelled(x + 20, 330, 136, 34, ["round S, queue Vᵀ K"], "paper")
        p.labelled(x + 172, 330, 100, 34, [f"put O of {n}"], "paper")
    p.text(426, 272, "the gap that is left", "middle small soft")
    p.text(110, 396, "While O of n is computed, S is rounded, and the product that adds chunk n + 1 to S joins the queue.", "small")
    return p


def gradient_walks() -> Picture:
    p = Picture(
        "gradient_walks", 760, 236, "Three gradients, three walks",
        "Three rows of four chunks. The walk for dq takes the chunks from the first to the last with S, on dO, V and K in the places of Q, K "
        "and V. The walks for dk and dv take them from the last to the first with dS, on V, dO and Q, and on K, Q and dO.",
    )  # fmt: skip
    rows = (("dq", "dO, V, K", "S", "a"), ("dk", "V, dO, Q", "dS", "c"), ("dv", "K, Q, dO", "dS", "c"))
    p.text(80, 24, "in the place of Q, K, V", "small soft")
    for i, (name, inputs, state, kind) in enumerate(rows):
        y = 44 + 66 * i
        p.text(24, y + 24, name, "mono bold")
        p.text(80, y + 24, inputs, "mono")
        for n in range(4):
            p.labelled(220 + 130 * n, y, 100, 36, [f"chunk {n}"], kind)
            if n < 3:
                left, right = 320 + 130 * n, 350 + 130 * n
                p.arrow(*(((left, y + 18), (right, y + 18)) if kind == "a" else ((right, y + 18), (left, y + 18))))
                p.text((left + right) / 2, y + 8, state, "middle small")
    return p


def z_as_key() -> Picture:
    p = Picture(
        "z_as_key", 760, 300, "z as one more key",
        "Left, the tile of K with 72 rows: 64 keys, then z rounded to bf16 in row 64, what the rounding loses in row 65, and six unused "
        "rows. Right, the product Q K^T with 64 rows and 72 columns: columns 0 to 63 become P, and columns 64 and 65 together are Q z.",
    )  # fmt: skip
    p.text(90, 26, "tile of K [72, Dk]", "bold")
    p.labelled(90, 44, 210, 150, ["64 keys of the chunk"], "a")
    p.labelled(90, 194, 210, 26, ["z, rounded to bf16"], "b")
    p.labelled(90, 220, 210, 26, ["what the rounding loses"], "c")
    p.labelled(90, 246, 210, 30, ["unused"], "paper")
    for y, words in ((58, "row 0"), (190, "63"), (212, "64"), (238, "65"), (268, "71")):
        p.text(82, y, words, "end small soft")
    p.arrow((310, 140), (400, 140))
    p.text(355, 128, "Q (...)ᵀ", "middle small")
    p.text(420, 26, "scores [64, 72]", "bold")
    p.labelled(420, 66, 210, 170, ["Q Kᵀ: masked, it becomes P"], "a")
    p.box(630, 66, 22, 170, "b", 0)
    p.box(652, 66, 22, 170, "c", 0)
    p.box(674, 66, 40, 170, "paper", 0)
    for x, words in ((430, "0"), (618, "63"), (641, "64"), (664, "65"), (704, "71")):
        p.text(x, 58, words, "middle small soft")
    p.text(652, 258, "together: Q z", "middle small")
    return p


def packed_sequences() -> Picture:
    p = Picture(
        "packed_sequences", 760, 330, "Padding and packing",
        "On the left a padded batch: four sequences of 37, 0, 92 and 4 positions as rows of 92, most of which is padding. On "
        "the right the same sequences one behind the other, with cu_seqlens 0, 37, 37, 129, 133 below their borders. They are "
        "cut into segments of at most 64 positions: sequence 0 is one, sequence 2 is two, sequence 3 is one. Below them the "
        "order of their blocks: first the full segment that another one follows, then the ends of all sequences, the longest "
        "first. A state passes from the first segment of sequence 2 to its second, and from no sequence to the next.",
    )  # fmt: skip
    lengths, kinds, unit = [37, 0, 92, 4], ["a", "b", "c", "d"], 2.1
    p.text(20, 30, "padded: 4 x 92 positions", "bold")
    for n, (length, kind) in enumerate(zip(lengths, kinds)):
        y = 50 + 34 * n
        p.box(20, y, 92 * unit, 24, "paper", 0)
        if length:
            p.box(20, y, length * unit, 24, kind, 0)
        p.text(28 + 92 * unit, y + 16, f"sequence {n}", "small")
    x0, unit = 340, 3
    p.text(x0, 30, "packed: 133 positions", "bold")
    offsets = [sum(lengths[:n]) for n in range(5)]
    for n, (length, kind) in enumerate(zip(lengths, kinds)):
        if length:
            p.box(x0 + offsets[n] * unit, 84, length * unit, 24, kind, 0)
    cut = x0 + (37 + 64) * unit
    p.line(cut, 78, cut, 114)
    p.lines(x0 + 18 * unit, 100, ["0"], "middle bold")
    p.lines(x0 + (37 + 32) * unit, 100, ["2"], "middle bold")
    p.lines(x0 + (37 + 78) * unit, 100, ["2"], "middle bold")
    p.lines(x0 + 131 * unit, 100, ["3"], "middle bold")
    for offset, shift in ((0, 0), (37, 0), (129, -10), (133, 10)):
        p.line(x0 + offset * unit, 108, x0 + offset * unit, 118)
        p.text(x0 + offset * unit + shift, 134, str(offset), "middle small mono")
    p.text(x0, 158, "cu_seqlens: 0, 37, 37, 129, 133; sequence 1 is empty", "small")
    p.arrow((cut - 40, 76), (cut - 40, 58), (cut + 40, 58), (cut + 40, 76))
    p.text(cut, 52, "state", "middle small")
    p.text(20, 222, "blocks, in the order of their start:", "bold")
    x = 20
    for width, kind, words in (
        (64, "c", "first 64 of 2"),
        (37, "a", "sequence 0"),
        (28, "c", "last 28 of 2"),
        (4, "d", "3"),
        (0, "b", "1"),
    ):
        wide = max(width * 3, 8)
        p.box(x, 240, wide, 24, kind if width else "line", 0)
        p.lines(x + (wide / 2 if width > 20 else 4), 284, [words], "middle small")
        x += wide + (40 if width in (28, 4) else 14)
    p.lines(20, 312, ["full segments that another one follows; then the ends of all sequences, the longest first"], "small")
    return p


DRAWINGS = (
    chunks,
    chunk_backward,
    chunk_states,
    chunk_bytes,
    mma_fragments,
    ldmatrix,
    padded_rows,
    swizzled_rows,
    state_stays,
    load_ahead,
    segments_at_once,
    mbarrier_phases,
    warpgroup_product,
    two_proxies,
    warpgroup_chunk,
    walk_roles,
    register_budget,
    three_slots,
    queued_products,
    gradient_walks,
    z_as_key,
    packed_sequences,
)
