"""The wings by name: one line each, and nothing is imported before it is asked for."""

JOBS = "R2MAE_JOBS"
"""Environment variable in which a comparison tells its processes how many they are."""

WINGS = {
    "images": "r2mae.images.wing",
    "cells": "r2mae.cells.wing",
    "text": "r2mae.text.wing",
}
