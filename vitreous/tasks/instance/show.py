from vitreous.tasks.show import Show

class InstanceShow(Show):
    headings = ("size", "objects>", "detections")

SHOW = InstanceShow()
