"""`./tutorial compare`: the timings of all chapters over the sequence's length, as tables and pictures.

    programs   the chapters' executables: what they hold, and one run of one of them
    machine    what the timings were measured on
    store      the file of timings
    plan       which processes a sweep needs, and about how long they take
    sweep      runs them, whatever happens to one of them
    tables     Markdown tables, and the README's
    pictures   SVG with Matplotlib
    peers      what tools/compare_with_fla.py measured
    groups     which stages belong together, and where one overtakes another
    readme     the README's table
    progress   what is said meanwhile
    against    ratios to somebody else's timings
    counts     what the emulator counts, for who has no GPU
"""
