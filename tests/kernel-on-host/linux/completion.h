/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the module needs of this header is in rdma/ib_verbs.h. */
