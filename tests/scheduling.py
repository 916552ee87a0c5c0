"""The order in which the workers of pytest-xdist get files, and what becomes of the file of one that dies."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling


class FilesInOrder(LoadFileScheduling):
    """A file is one worker's. What has ended its worker has failed, and the rest of its file goes to another.

    The class it is made of gives a test that kills its worker to the next one, over and over, and fails when it finds
    a worker that is still collecting.
    """

    def remove_node(self, node):
        work = self.assigned_work[node]
        crashed = next((test for unit in work.values() for test, done in unit.items() if not done), None)
        for unit in work.values():
            if crashed in unit:
                unit[crashed] = True
        if not self._pending_of(work):
            self.assigned_work.pop(node)
        else:
            super().remove_node(node)
        return crashed

    def _reschedule(self, node):
        if node not in self.registered_collections:
            return
        # A worker begins a test when it knows what comes next, be it the end.
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()
