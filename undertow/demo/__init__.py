"""`undertow demo`: a detector learns real pictures in a few minutes, and shows what it has learned."""

from undertow.demo.folder import DemoFolder as DemoFolder
from undertow.demo.learn import DemoOptions as DemoOptions
from undertow.demo.learn import LastEvaluation as LastEvaluation
from undertow.demo.learn import make_trainer as make_trainer
from undertow.demo.learn import show as show

__all__ = ["DemoFolder", "DemoOptions", "LastEvaluation", "make_trainer", "show"]
