"""The wings by name: one line each, and nothing is imported before it is asked for."""

WINGS = {
    "images": "r2mae.images.wing",
    "cells": "r2mae.cells.wing",
}
