# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of the options of mining."""

SAMPLINGS = ("top", "random")


QUERY_KINDS = ("titles", "first_sentences", "sentences")
