"""The drawings of chapter 04, fused chunks."""

from svg import Picture


def five_steps() -> Picture:
    p = Picture(
        "five_steps", 820, 520, "The five steps and what lies in memory between them",
        "Step 1, decay_cumsum, makes sums of g. Step 2, prepare_qg_kg, makes q_g and k_g of q, k and the sums. Step 3, "
        "fused_chunk, walks the sub-chunks with q_g, k_g, v, the sub-chunks' last sums and S_0, and leaves partials and the final "
        "state. Step 4, inner_chunk, makes scores of q, k and the sums. Step 5, combine, makes o of the partials, the scores and v.",
    )  # fmt: skip

    def tensor(x, y, name, shape, width=150):
        p.labelled(x, y, width, 44, [name, shape], "a")

    def step(x, y, number, name, grid, width=176):
        p.labelled(x, y, width, 44, [f"{number}  {name}", grid], "b", "middle small bold")

    tensor(20, 20, "g", "[B, H, L, Dk]")
    step(240, 20, 1, "decay_cumsum", "(NK, R, B H)")
    tensor(490, 20, "sums", "[B, H, L, Dk] fp32")
    p.arrow((170, 42), (240, 42))
    p.arrow((416, 42), (490, 42))
    tensor(20, 120, "q, k", "[B, H, L, Dk]")
    step(240, 120, 2, "prepare_qg_kg", "(NK, R, B H)")
    tensor(490, 120, "q_g, k_g", "[B, H, L, Dk] bf16")
    p.arrow((170, 142), (240, 142))
    p.arrow((416, 142), (490, 142))
    p.arrow((520, 64), (520, 92), (328, 92), (328, 120))
    tensor(20, 220, "v, S_0", "[B, H, L, Dv]")
    step(240, 220, 3, "fused_chunk", "(NK, NV, B H)")
    tensor(490, 220, "partials, final state", "[NK, B, H, L, Dv] fp32", 176)
    p.arrow((170, 242), (240, 242))
    p.arrow((416, 242), (490, 242))
    p.arrow((520, 164), (520, 192), (328, 192), (328, 220))
    p.arrow((640, 42), (700, 42), (700, 202), (380, 202), (380, 220), kind="line dashed")
    p.text(706, 120, "last rows of", "small")
    p.text(706, 136, "the sub-chunks", "small")
    step(240, 320, 4, "inner_chunk", "(NK, R, B H)")
    tensor(490, 320, "scores", "[NK, B, H, R, 16, 16] bf16", 176)
    p.arrow((416, 342), (490, 342))
    p.arrow((210, 142), (210, 332), (240, 332))
    p.arrow((640, 30), (806, 30), (806, 302), (328, 302), (328, 320))
    step(240, 430, 5, "combine", "(NV, R, B H)")
    tensor(490, 430, "o", "[B, H, L, Dv]")
    p.arrow((416, 452), (490, 452))
    p.arrow((190, 242), (190, 446), (240, 446))
    p.arrow((578, 364), (578, 398), (328, 398), (328, 430))
    p.arrow((666, 242), (706, 242), (706, 412), (372, 412), (372, 430))
    p.text(20, 505, "blue: in device memory; yellow: a kernel and its grid", "small soft")
    return p


DRAWINGS = (five_steps,)
