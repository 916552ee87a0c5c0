"""A limit on the processor throttles; only root's control groups can hold one here."""

import os

from tests.escape import residue


def test_a_processor_limit_throttles(root_maker):
    """Told by the kernel's own count, which a busy machine does not disturb."""

    def throttled(box):
        for path in residue.control_groups(box.id):
            if os.path.exists(f"{path}/cpu.stat"):
                with open(f"{path}/cpu.stat") as file:
                    return int(dict(line.split() for line in file)["nr_throttled"])
        return 0

    burn = "import time; end = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
    # Less than the share that it gets of a busy machine's processors, or it would never come to its limit.
    with root_maker.create(resources={"cpu": 0.05}) as box:
        box.run(["python3", "-c", burn], check=True)
        assert throttled(box) > 0
    with root_maker.create() as box:
        box.run(["python3", "-c", burn], check=True)
        assert throttled(box) == 0
