# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Students: converting pretrained encoders, loading and whitening."""
