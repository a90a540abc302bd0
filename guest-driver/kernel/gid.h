/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_GID_H
#define VRDMA_GID_H

struct ib_gid_attr;

int vrdma_add_gid(const struct ib_gid_attr *attr, void **context);
int vrdma_del_gid(const struct ib_gid_attr *attr, void **context);

#endif /* VRDMA_GID_H */
