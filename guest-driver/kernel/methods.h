/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_METHODS_H
#define VRDMA_METHODS_H

#include <rdma/uverbs_ioctl.h>

extern const struct uapi_definition vrdma_uapi_defs[];

#endif /* VRDMA_METHODS_H */
