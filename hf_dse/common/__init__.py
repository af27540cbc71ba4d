# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What every room needs, and nothing else: files, options, devices, tables and plots, where results come from."""
