// SPDX-License-Identifier: GPL-2.0
/*
 * Regions for fast registration, for users in the kernel.
 *
 * A request defines what such a region contains, by a page list that the device reads.
 */
#include <linux/log2.h>
#include <linux/slab.h>

#include "broken.h"
#include "fast.h"
#include "mem.h"
#include "mrcmds.h"
#include "objects.h"

/*
 * Allocates the region in the device. On failure, releases @mr->mem, the memory of the page list.
 */
static int alloc_in_device(struct vrdma_dev *dev, struct ib_pd *ibpd, struct vrdma_mr *mr)
{
	int err;

	err = vrdma_cmd_alloc_fast_mr(dev, to_vpd(ibpd)->pdn, mr->max_pages, &mr->ibmr, &mr->mem);
	if (err)
		vrdma_mem_release(dev, mr->mem, vrdma_broken(dev) ? err : 0);
	return err;
}

struct ib_mr *vrdma_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_num_sg)
{
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	struct vrdma_mr *mr;
	int err;

	if (type != IB_MR_TYPE_MEM_REG || !dev->caps.max_fast_reg_pages)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg || max_num_sg > dev->caps.max_fast_reg_pages)
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->mem = vrdma_mem_alloc(dev, max_num_sg * sizeof(*mr->pages), GFP_KERNEL);
	if (!mr->mem) {
		err = -ENOMEM;
		goto err_mr;
	}
	mr->pages = mr->mem->vaddr;
	mr->page_list = mr->mem->dma;
	mr->max_pages = max_num_sg;
	err = alloc_in_device(dev, ibpd, mr);
	if (err)
		goto err_mr;
	return &mr->ibmr;

err_mr:
	kfree(mr);
	return ERR_PTR(err);
}

/* The bits of a key that its user chooses. */
#define KEY_TAG 0xff

static int add_page(struct ib_mr *ibmr, u64 addr)
{
	struct vrdma_mr *mr = to_vmr(ibmr);

	if (mr->num_pages == mr->max_pages)
		return -ENOMEM;
	mr->pages[mr->num_pages++] = cpu_to_le64(addr);
	return 0;
}

/*
 * Lists the pages for the next IB_WR_REG_MR.
 *
 * The device reads as many pages as the length of the region needs. That may be one less than are
 * listed here, if not all of @sg fits.
 */
int vrdma_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int sg_nents,
		    unsigned int *sg_offset)
{
	to_vmr(ibmr)->num_pages = 0;
	return ib_sg_to_pages(ibmr, sg, sg_nents, sg_offset, add_page);
}

/**
 * vrdma_fill_reg() - build the request that registers what vrdma_map_mr_sg() listed
 * @wqe: the request; its header is filled in except for its units, and the rest is zero
 * @wr: IB_WR_REG_MR
 *
 * The device checks whether the registration is allowed.
 */
int vrdma_fill_reg(u8 *wqe, const struct ib_send_wr *wr)
{
	struct vrdma_wqe_reg_mr_memory *memory = (void *)&wqe[VRDMA_WQE_DATA_OFFSET];
	struct vrdma_wqe_reg_mr *body = (void *)&wqe[VRDMA_WQE_BODY_OFFSET];
	const struct ib_reg_wr *reg = reg_wr(wr);
	const struct vrdma_mr *mr = to_vmr(reg->mr);
	/* Hints are ignored, as in check_access() of mr.c. */
	int access = reg->access & ~(IB_ACCESS_OPTIONAL | IB_ACCESS_HUGETLB);

	if (!mr->pages || wr->num_sge || !is_power_of_2(mr->ibmr.page_size))
		return -EINVAL;
	if (access & ~VRDMA_ACCESS_V1_0)
		return -EOPNOTSUPP;
	/* The key of the region counts; the request only chooses the tag. */
	body->key = cpu_to_le32((mr->ibmr.lkey & ~KEY_TAG) | (reg->key & KEY_TAG));
	body->access = cpu_to_le32(access);
	body->page_shift = ilog2(mr->ibmr.page_size);
	memory->iova = cpu_to_le64(mr->ibmr.iova);
	memory->length = cpu_to_le64(mr->ibmr.length);
	memory->page_list = cpu_to_le64(mr->page_list);
	((struct vrdma_wqe *)wqe)->units = 1;
	return 0;
}
